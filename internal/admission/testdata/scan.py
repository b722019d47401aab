"""The straightforward scan that the benchmark compares with: it reads each
manifest and, for each name in it, tries the project's store of every owner."""
import glob, hashlib, json, os, sys

docs = sys.argv[1]
ROOTS = ["Workflow", "Crew", "Relays"] + ["Chats/%s/projects" % k for k in ("Work", "Code", "Relays", "Goals", "Video Studio")]
users = os.path.join(docs, "_users")
owners = sorted(d for d in os.listdir(users) if d != "_system_global_secrets")
try:
    managed = set(json.load(open(os.path.join(users, "_system_global_secrets", "secrets.json"))))
except OSError:
    managed = set()
env = {k[len("GLOBAL_SECRET_"):] for k in os.environ if k.startswith("GLOBAL_SECRET_")}

manifests = []
for base in [docs] + [os.path.join(users, o) for o in owners if o != "_shared"]:
    for root in ROOTS:
        for name in ("workflow.json", "product.json"):
            manifests += sorted(glob.glob(os.path.join(glob.escape(base), root, "*", name)))

missing = 0
for path in manifests:
    try:
        caps = json.load(open(path)).get("capabilities", {})
    except (OSError, ValueError, AttributeError):
        continue
    if not isinstance(caps, dict):
        continue
    project = os.path.relpath(os.path.dirname(path), docs)
    local = set()
    for owner in owners:
        store = os.path.join(users, owner, "workflow_secrets", hashlib.sha256(project.encode()).hexdigest() + ".json")
        try:
            doc = json.load(open(store))
        except (OSError, ValueError):
            continue
        if doc.get("workflow_path") == project:
            local |= set(doc.get("secrets", {}))
    for field in ("selected_secrets", "selected_global_secret_names"):
        for name in caps.get(field) or []:
            if isinstance(name, str) and name not in managed and name not in env and name not in local:
                missing += 1
print(len(manifests), missing)
