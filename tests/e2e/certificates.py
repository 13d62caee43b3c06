"""Certificates for tests, made with the openssl program."""

import subprocess


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make(folder, name, issuer=None):
    """Writes NAME.pem and NAME.key for localhost and 127.0.0.1 and returns both paths.

    Without an issuer, the pair of another call, the certificate signs itself and may sign others.
    """
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    if issuer is None:
        _openssl("req", "-x509", "-key", key, "-subj", f"/CN={name}", "-days", "2", "-addext", names, "-out", cert)
        return cert, key
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(names + "\n")
    _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
    _openssl("x509", "-req", "-in", request, "-CA", issuer[0], "-CAkey", issuer[1], "-CAcreateserial", "-days", "2",
             "-extfile", extensions, "-out", cert)
    return cert, key
