"""Holds real requests and answers to a server's /openapi.json."""

import copy
import json
import re

import jsonschema


def _closed(schema):
    """The schema, which now also refuses members that it does not name."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


class Description:
    def __init__(self, server):
        status, _, self.document = server.request("GET", "/openapi.json")
        assert status == 200
        self._closed = copy.deepcopy(self.document["components"])
        self._closed["schemas"] = _closed(self._closed["schemas"])

    def operation(self, method, path):
        """The description of a request; None if the document has no such path or method."""
        def fits(template):
            return re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), path.split("?")[0])
        paths = self.document["paths"]
        found = path if path in paths else next((template for template in paths if fits(template)), None)
        return paths.get(found, {}).get(method.lower())

    def check_answer(self, method, path, status, content_type, body):
        """Checks the body of an answer, bytes: the form that the description has for the status, and no other member."""
        responses = self.operation(method, path)["responses"]
        described = responses.get(str(status), responses["default"])
        if "$ref" in described:
            described = self.document["components"]["responses"][described["$ref"].rsplit("/", 1)[1]]
        kind = content_type.split(";")[0]
        assert kind in described["content"], f"{method} {path} {status}: {kind} is not described"
        if status == 200:
            assert str(status) in responses
        if kind == "application/json":
            schema = {**described["content"][kind]["schema"], "components": self._closed}
            jsonschema.Draft202012Validator(schema).validate(json.loads(body))

    def check_request(self, method, path, body):
        """Checks the JSON body of a request that the server has accepted."""
        described = self.operation(method, path).get("requestBody")
        assert described is not None, f"{method} {path}: a body is not described"
        schema = {**described["content"]["application/json"]["schema"], "components": self.document["components"]}
        jsonschema.Draft202012Validator(schema).validate(body)
