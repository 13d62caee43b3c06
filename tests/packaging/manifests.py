"""Checks Kubernetes manifests: the schemas of the built-in kinds, and what the objects say of each other."""

import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

BUILT_IN = {"v1", "apps/v1", "policy/v1"}

objects = {}
for path in sorted(Path(sys.argv[1]).glob("*.yaml")):
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        if document["apiVersion"] in BUILT_IN:
            kubernetes_validate.validate(document, "1.28", strict=True)
        key = document["kind"], document["metadata"]["name"]
        assert key not in objects, f"{key} is defined twice"
        objects[key] = document

deployment = objects["Deployment", "chorus"]["spec"]
pod = deployment["template"]["spec"]
labels = deployment["template"]["metadata"]["labels"]
for selector in (deployment["selector"]["matchLabels"], objects["Service", "chorus"]["spec"]["selector"],
                 objects["PodDisruptionBudget", "chorus"]["spec"]["selector"]["matchLabels"],
                 objects["InferencePool", "chorus"]["spec"]["selector"]["matchLabels"]):
    assert selector.items() <= labels.items(), selector

container, = pod["containers"]
mounted = {mount["name"] for mount in container["volumeMounts"]}
assert mounted == {volume["name"] for volume in pod["volumes"]}
for volume in pod["volumes"]:
    if "persistentVolumeClaim" in volume:
        assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in objects
    if "configMap" in volume:
        assert ("ConfigMap", volume["configMap"]["name"]) in objects

config = yaml.safe_load(objects["ConfigMap", "chorus"]["data"]["chorus.yaml"])
pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
assert pod["terminationGracePeriodSeconds"] > pause + config["drain_delay"] + config["drain_timeout"] + 15
assert pod["enableServiceLinks"] is False, "CHORUS_... variables of the service would be taken for flags"
probe = container["readinessProbe"]
assert config["drain_delay"] > probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]

pool = objects["InferencePool", "chorus"]["spec"]
assert pool["targetPorts"] == [{"number": container["ports"][0]["containerPort"]}]
for (kind, name), model in objects.items():
    if kind == "InferenceModel":
        assert model["spec"]["poolRef"]["name"] == "chorus"
        weights = [target["weight"] for target in model["spec"].get("targetModels", [])]
        assert not weights or sum(weights) == 100, name

with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
    # Outside a cluster the name of the service does not resolve; init-addr none allows that.
    file.write(objects["ConfigMap", "chorus-router"]["data"]["haproxy.cfg"])
    file.flush()
    subprocess.run(["haproxy", "-c", "-q", "-f", file.name], check=True, env={"PATH": "/usr/sbin:/usr/bin"})
print(f"manifests: {len(objects)} objects")
