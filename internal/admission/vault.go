package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"

	"agentworks-deploy/internal/report"
)

// Answer is what Vault knows of the selected names. A name that is missing in a
// map could not be looked up.
type Answer struct {
	Exists   map[string]bool
	Granted  map[string]bool
	DataRoot string       // API path above a name's value: what a policy has to grant
	Rows     []report.Row // what the person should know of the server itself
}

func (a *Answer) add(state report.State, format string, args ...any) {
	a.Rows = append(a.Rows, report.Row{State: state, Check: "secret-vault", Detail: fmt.Sprintf(format, args...)})
}

// vault asks one server. mount and prefix have no slashes at their ends.
type vault struct {
	client        *api.Client
	mount, prefix string
	group         string
	v2            bool
}

const (
	maxGroupLevels   = 10 // parents of the Platform group, upwards
	metadataAtOnce   = 8  // metadata reads under way
	maxFolderRequest = 2000
)

// ask answers for names, each a bare NAME or folder/NAME. It never fails as a
// whole: what could not be looked up is a row and leaves its Answer unknown.
func (v *vault) ask(ctx context.Context, names []string) *Answer {
	a := &Answer{Exists: map[string]bool{}, Granted: map[string]bool{}}
	if len(names) == 0 {
		return a
	}
	if err := v.version(ctx); err != nil {
		a.add(refusalState(err), "not checked: %s", explain(err, "read", "sys/internal/ui/mounts/"+v.mount))
		return a
	}
	a.DataRoot = v.dataPath("")
	v.existence(ctx, names, a)
	v.grants(ctx, names, a)
	v.ownRights(ctx, names, a)
	return a
}

// version finds out whether the mount is KV v1 or v2. The ui path needs no
// more than some right below the mount; sys/mounts needs a right of its own.
func (v *vault) version(ctx context.Context) error {
	type options = map[string]any
	s, err := v.client.Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+v.mount)
	if statusOf(err) == http.StatusForbidden {
		all, err2 := v.client.Logical().ReadWithContext(ctx, "sys/mounts")
		if err2 != nil {
			return err
		}
		if all == nil {
			return errors.New("sys/mounts has no answer")
		}
		entry, ok := all.Data[v.mount+"/"].(map[string]any)
		if !ok {
			return fmt.Errorf("there is no secrets engine at %s/", v.mount)
		}
		opts, _ := entry["options"].(options)
		v.v2 = opts["version"] == "2"
		return nil
	}
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("there is no secrets engine at %s/", v.mount)
	}
	opts, _ := s.Data["options"].(options)
	v.v2 = opts["version"] == "2"
	return nil
}

func (v *vault) dataPath(name string) string {
	if v.v2 {
		return path.Join(v.mount, "data", v.prefix, name)
	}
	return path.Join(v.mount, v.prefix, name)
}

func (v *vault) metadataPath(rel string) string {
	if v.v2 {
		return path.Join(v.mount, "metadata", v.prefix, rel)
	}
	return path.Join(v.mount, v.prefix, rel)
}

// existence lists each folder that a selected name lies in, once, then reads
// the metadata of the names found there, once each: a list shows deleted names.
func (v *vault) existence(ctx context.Context, names []string, a *Answer) {
	folders := map[string][]string{}
	for _, n := range names {
		folder, _ := path.Split(n)
		folder = strings.TrimSuffix(folder, "/")
		folders[folder] = append(folders[folder], n)
	}
	if len(folders) > maxFolderRequest {
		a.add(report.Info, "not checked: the manifests name %d folders, more than %d", len(folders), maxFolderRequest)
		return
	}
	var listed, closed []string
	var refusal error
	for _, folder := range sortedKeys(folders) {
		held, err := v.list(ctx, folder)
		if err != nil {
			closed, refusal = append(closed, folder), err
			if statusOf(err) != http.StatusForbidden || tokenIsDead(err) {
				break // the other folders would end the same way
			}
			continue
		}
		for _, n := range folders[folder] {
			if held[path.Base(n)] {
				listed = append(listed, n)
			} else {
				a.Exists[n] = false
			}
		}
	}
	if refusal != nil {
		at := v.metadataPath(closed[len(closed)-1])
		text := "names below " + at
		if n := len(closed) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more folder(s)", n)
		}
		a.add(refusalState(refusal), "%s not checked: %s", text, explain(refusal, "list", at))
	}
	if !v.v2 {
		for _, n := range listed {
			a.Exists[n] = true
		}
		return
	}
	v.undeleted(ctx, listed, a)
}

// list names what a folder holds, without the folders in it.
func (v *vault) list(ctx context.Context, folder string) (map[string]bool, error) {
	s, err := v.client.Logical().ListWithContext(ctx, v.metadataPath(folder))
	if err != nil || s == nil { // nil: an empty or absent folder answers 404
		return nil, err
	}
	keys, ok := s.Data["keys"].([]any)
	if !ok {
		return nil, errors.New("the answer has no list of keys")
	}
	held := make(map[string]bool, len(keys))
	for _, k := range keys {
		if name, ok := k.(string); ok && !strings.HasSuffix(name, "/") {
			held[name] = true
		}
	}
	return held, nil
}

// undeleted keeps the listed names whose newest version is there. Without the
// right to read metadata the names count as there, and the person is told.
func (v *vault) undeleted(ctx context.Context, listed []string, a *Answer) {
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		failed error
		blind  int
	)
	next := make(chan string)
	for range min(metadataAtOnce, len(listed)) {
		wg.Go(func() {
			for name := range next {
				there, err := v.newestIsThere(ctx, name)
				mu.Lock()
				if err != nil {
					blind++
					failed = err
				}
				a.Exists[name] = there || err != nil
				mu.Unlock()
			}
		})
	}
	for _, name := range listed {
		next <- name
	}
	close(next)
	wg.Wait()
	if failed != nil {
		a.add(report.Info, "%d name(s) exist, deletion not checked: %s", blind, explain(failed, "read", path.Join(v.mount, "metadata", v.prefix, "+")))
	}
}

func (v *vault) newestIsThere(ctx context.Context, name string) (bool, error) {
	s, err := v.client.Logical().ReadWithContext(ctx, v.metadataPath(name))
	if err != nil || s == nil {
		return false, err
	}
	versions, _ := s.Data["versions"].(map[string]any)
	newest, ok := versions[fmt.Sprint(s.Data["current_version"])].(map[string]any)
	if !ok {
		return false, nil // metadata without any version holds no secret
	}
	if gone, _ := newest["destroyed"].(bool); gone {
		return false, nil
	}
	// deletion_time may lie ahead, where delete_version_after is set.
	at, _ := newest["deletion_time"].(string)
	when, err := time.Parse(time.RFC3339Nano, at)
	return at == "" || err != nil || when.After(time.Now()), nil
}

// grants evaluates the union of the policies of the Platform group and its
// parents on each name's data path.
func (v *vault) grants(ctx context.Context, names []string, a *Answer) {
	if v.group == "" {
		a.add(report.Info, "grants not checked: the host file names no vault.platform_group")
		return
	}
	policies, err := v.groupPolicies(ctx)
	if err != nil {
		a.add(refusalState(err), "grants not checked: %s", explain(err, "read", "identity/group/name/"+v.group))
		return
	}
	union, complete := newACL(), true
	for _, name := range policies {
		policyPath := "sys/policies/acl/" + name
		s, err := v.client.Logical().ReadWithContext(ctx, policyPath)
		switch {
		case err != nil:
			a.add(report.Info, "grants not checked: policy %s: %s", name, explain(err, "read", policyPath))
			complete = false
		case s == nil:
			a.add(report.Warn, "group %s names policy %s, which nobody defined; write it with `vault policy write %s FILE`", v.group, name, name)
		default:
			text, _ := s.Data["policy"].(string)
			if err := union.add(text); err != nil {
				a.add(report.Info, "grants not checked: policy %s: %v", name, err)
				complete = false
			}
		}
	}
	if !complete {
		return
	}
	for _, n := range names {
		a.Granted[n] = union.mayRead(v.dataPath(n))
	}
}

// groupPolicies are those of the Platform group and of its parents, sorted.
func (v *vault) groupPolicies(ctx context.Context) ([]string, error) {
	policies, seen := map[string]bool{}, map[string]bool{}
	level := []string{"identity/group/name/" + v.group}
	for depth := 0; len(level) > 0; depth++ {
		if depth > maxGroupLevels {
			return nil, fmt.Errorf("group %s has parents more than %d levels up", v.group, maxGroupLevels)
		}
		var above []string
		for _, at := range level {
			s, err := v.client.Logical().ReadWithContext(ctx, at)
			if err != nil {
				return nil, err
			}
			if s == nil {
				return nil, fmt.Errorf("%s does not exist", at)
			}
			if id, _ := s.Data["id"].(string); id != "" {
				seen[id] = true
			}
			for _, p := range stringsOf(s.Data["policies"]) {
				policies[p] = true
			}
			for _, id := range stringsOf(s.Data["parent_group_ids"]) {
				if !seen[id] {
					seen[id] = true
					above = append(above, "identity/group/id/"+id)
				}
			}
		}
		level = above
	}
	return sortedKeys(policies), nil
}

// ownRights warns when the token used here could read the values themselves.
func (v *vault) ownRights(ctx context.Context, names []string, a *Answer) {
	paths := make([]string, len(names))
	for i, n := range names {
		paths[i] = v.dataPath(n)
	}
	s, err := v.client.Logical().WriteWithContext(ctx, "sys/capabilities-self", map[string]any{"paths": paths})
	if err != nil || s == nil {
		return // every token may ask; one that may not has told so above
	}
	n := 0
	for _, p := range paths {
		if caps := stringsOf(s.Data[p]); slices.Contains(caps, "read") || slices.Contains(caps, "root") {
			n++
		}
	}
	if n == 0 {
		return
	}
	metadata := path.Join(v.mount, "metadata", v.prefix)
	a.add(report.Warn, "the token may read the values of %d of the selected names; names are enough: "+
		"path %q { capabilities = [\"list\"] } path %q { capabilities = [\"list\", \"read\"] } path \"identity/group/*\" { capabilities = [\"read\"] } path \"sys/policies/acl/*\" { capabilities = [\"read\"] }",
		n, metadata, metadata+"/*")
}

func stringsOf(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
