package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"

	"agentworks-deploy/internal/safefs"
)

// maxStore bounds one store file; stores hold values, manifests do not.
const maxStore = 16 << 20

// skipped is a JSON value that is passed over: a secret never becomes part of
// a Go value here.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// stores knows where secrets can exist on the host, by name (case K-02).
type stores struct {
	managed map[string]bool            // keys of _system_global_secrets/secrets.json
	env     map[string]bool            // NAME of GLOBAL_SECRET_NAME
	own     map[string]map[string]bool // project path → names in its own stores
}

// holds says where a selected name exists.
func (s *stores) holds(sel Selection) (local, shared bool) {
	return s.own[sel.project][sel.Name], s.managed[sel.Name] || s.env[sel.Name]
}

// storeKey is the file name of a project's own store.
func storeKey(project string) string {
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:]) + ".json"
}

// readStores reads the managed store and, for each of projects, its own store
// below every owner. Each owner's folder is listed once, so that the work grows
// with stores and not with manifests times owners.
func readStores(ctx context.Context, docs *safefs.Dir, projects map[string]bool, envNames []string, warnf func(string, ...any)) (*stores, error) {
	s := &stores{managed: map[string]bool{}, env: map[string]bool{}, own: map[string]map[string]bool{}}
	for _, key := range envNames {
		if name, ok := strings.CutPrefix(key, "GLOBAL_SECRET_"); ok && name != "" {
			s.env[name] = true
		}
	}
	users, err := subfolder(docs, usersFolder)
	if err != nil {
		return s, nil // the walk has said why
	}
	defer users.Close()
	s.readManaged(users, warnf)

	byKey := make(map[string]string, len(projects))
	for p := range projects {
		byKey[storeKey(p)] = p
	}
	owners, err := children(users)
	if err != nil {
		return s, nil
	}
	for _, owner := range owners {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if owner != systemOwner {
			s.readOwner(users, owner, byKey, warnf)
		}
	}
	return s, nil
}

func (s *stores) readManaged(users *safefs.Dir, warnf func(string, ...any)) {
	shown := path.Join(usersFolder, systemOwner, "secrets.json")
	folder, err := subfolder(users, systemOwner)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var data []byte
	if err == nil {
		defer folder.Close()
		data, err = readRegular(folder, "secrets.json", maxStore)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var keys map[string]skipped
	if err == nil && json.Unmarshal(data, &keys) != nil {
		err = errNoObject
	}
	if err != nil {
		warnf("%s: %v", shown, reason(err))
		return
	}
	for k := range keys {
		s.managed[k] = true
	}
}

// errNoObject never quotes the file: it holds values.
var errNoObject = errors.New("no JSON object of the store's shape")

func (s *stores) readOwner(users *safefs.Dir, owner string, byKey map[string]string, warnf func(string, ...any)) {
	shown := path.Join(usersFolder, owner, "workflow_secrets")
	if owner != sharedOwner {
		shown = path.Join(usersFolder, userRedacted, "workflow_secrets")
	}
	folder, err := subfolder(users, path.Join(owner, "workflow_secrets"))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			warnf("%s: %v", shown, reason(err))
		}
		return
	}
	defer folder.Close()
	names, err := folder.Names()
	if err != nil {
		warnf("%s: %v", shown, reason(err))
		return
	}
	for _, name := range names {
		project, wanted := byKey[name]
		if !wanted {
			continue
		}
		if err := s.readOwn(folder, name, project); err != nil {
			warnf("%s: %v", path.Join(shown, name), reason(err))
		}
	}
}

func (s *stores) readOwn(folder *safefs.Dir, name, project string) error {
	data, err := readRegular(folder, name, maxStore)
	if err != nil {
		return err
	}
	var doc struct {
		WorkflowPath string             `json:"workflow_path"`
		Secrets      map[string]skipped `json:"secrets"`
	}
	if json.Unmarshal(data, &doc) != nil {
		return errNoObject
	}
	if doc.WorkflowPath != project {
		return errors.New("its workflow_path is another project's: it is not counted")
	}
	if s.own[project] == nil {
		s.own[project] = map[string]bool{}
	}
	for k := range doc.Secrets {
		s.own[project][k] = true
	}
	return nil
}
