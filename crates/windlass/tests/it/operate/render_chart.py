"""Lints and renders the Helm chart in argv[1] with the values in argv[2], as `helm` would, checks
what comes out against the schemas of Kubernetes, and prints the manifests as JSON lines."""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

KUBERNETES = "1.33"

path, values = sys.argv[1], json.loads(sys.argv[2])
report = helm_python.lint(path, values, strict=True, kube_version=f"v{KUBERNETES}.0")
if report["errors"]:
    sys.exit("\n".join(report["errors"]))
try:
    rendered = helm_python.Chart.load(path).render(values, name="jobs", namespace="prod")
except helm_python.HelmError as error:
    sys.exit(str(error))
for name, text in rendered.items():
    for manifest in yaml.safe_load_all(text) if name.endswith(".yaml") else []:
        if manifest:
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            print(json.dumps(manifest))
