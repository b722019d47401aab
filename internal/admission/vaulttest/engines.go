package vaulttest

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"
)

const stamp = time.RFC3339Nano

func (s *Server) sys(w http.ResponseWriter, op, path string, body map[string]any, policies []string) {
	switch {
	case strings.HasPrefix(path, "internal/ui/mounts/"):
		mount := strings.TrimPrefix(path, "internal/ui/mounts/")
		if s.mounts[mount] == "" || !s.anyBelow(policies, mount) {
			refuse(w, http.StatusForbidden, fmt.Sprintf("preflight capability check returned 403, please ensure client's policies grant access to path %q", mount+"/"))
			return
		}
		data(w, "system", s.mountDoc(mount, true))
	case path == "mounts":
		all := map[string]any{}
		for m := range s.mounts {
			all[m+"/"] = s.mountDoc(m, false)
		}
		data(w, "system", all)
	case strings.HasPrefix(path, "mounts/") && op == "update":
		mount := strings.TrimPrefix(path, "mounts/")
		version := "1"
		if opts, ok := body["options"].(map[string]any); ok {
			version = fmt.Sprint(opts["version"])
		}
		s.mounts[mount], s.secrets[mount] = version, map[string]*secret{}
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(path, "mounts/") && op == "delete":
		mount := strings.TrimPrefix(path, "mounts/")
		delete(s.mounts, mount)
		delete(s.secrets, mount)
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(path, "auth/") && op == "update":
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(path, "policies/acl/"):
		s.policy(w, op, strings.ToLower(strings.TrimPrefix(path, "policies/acl/")), body)
	case path == "capabilities-self":
		s.capabilities(w, stringList(body["paths"]), policies)
	case path == "capabilities":
		token, _ := body["token"].(string)
		s.capabilities(w, stringList(body["paths"]), s.tokens[token])
	default:
		refuse(w, http.StatusNotFound, "no handler for route \"sys/"+path+"\". route entry not found.")
	}
}

func (s *Server) mountDoc(mount string, withPath bool) map[string]any {
	d := map[string]any{"accessor": "kv_" + mount, "type": "kv", "description": "", "local": false, "seal_wrap": false, "options": map[string]any{"version": s.mounts[mount]}, "config": map[string]any{}}
	if withPath {
		d["path"] = mount + "/"
	}
	return d
}

func (s *Server) policy(w http.ResponseWriter, op, name string, body map[string]any) {
	switch op {
	case "update":
		text, _ := body["policy"].(string)
		s.policies[name] = text
		w.WriteHeader(http.StatusNoContent)
	case "delete":
		delete(s.policies, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		text, ok := s.policies[name]
		if !ok {
			refuse(w, http.StatusNotFound)
			return
		}
		data(w, "system", map[string]any{"name": name, "policy": text})
	}
}

func (s *Server) capabilities(w http.ResponseWriter, paths, policies []string) {
	perPath := map[string]any{}
	for _, p := range paths {
		caps := s.capabilitiesOn(policies, p)
		if len(caps) == 0 {
			caps = []string{"deny"}
		}
		perPath[p] = caps
	}
	top := map[string]any{"data": perPath, "mount_type": "system"}
	for p, caps := range perPath {
		top[p] = caps
	}
	envelope(w, top)
}

func (s *Server) identity(w http.ResponseWriter, op, path string, body map[string]any) {
	path = strings.TrimPrefix(path, "/")
	if op == "update" {
		name, _ := strings.CutPrefix(path, "name/")
		if name == "" || path == "" {
			name, _ = body["name"].(string)
		}
		g := s.byName(name)
		if g == nil {
			g = &group{id: rand.Text(), name: name}
			s.groups[g.id] = g
		}
		g.policies = stringList(body["policies"])
		g.members = stringList(body["member_group_ids"])
		data(w, "identity", map[string]any{"id": g.id, "name": g.name})
		return
	}
	var g *group
	if name, ok := strings.CutPrefix(path, "name/"); ok {
		g = s.byName(name)
	} else {
		g = s.groups[strings.TrimPrefix(path, "id/")]
	}
	if g == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	if op == "delete" {
		delete(s.groups, g.id)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var parents []string
	for _, p := range s.groups {
		if slices.Contains(p.members, g.id) {
			parents = append(parents, p.id)
		}
	}
	now := time.Now().Format(stamp)
	data(w, "identity", map[string]any{
		"alias": map[string]any{}, "creation_time": now, "id": g.id, "last_update_time": now, "member_entity_ids": []string{}, "member_group_ids": g.members,
		"metadata": nil, "modify_index": 1, "name": g.name, "namespace_id": "root", "parent_group_ids": parents, "policies": g.policies, "type": "internal",
	})
}

func (s *Server) byName(name string) *group {
	for _, g := range s.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

func (s *Server) kv2(w http.ResponseWriter, op, mount, path string, body map[string]any) {
	kind, name, _ := strings.Cut(path, "/")
	entry := s.secrets[mount][name]
	switch {
	case kind == "metadata" && op == "list":
		s.list(w, mount, name)
	case kind == "data" && op == "update":
		if entry == nil {
			entry = &secret{}
			s.secrets[mount][name] = entry
		}
		values, _ := body["data"].(map[string]any)
		entry.versions = append(entry.versions, version{values: values, created: time.Now()})
		data(w, "kv", versionDoc(entry, len(entry.versions)))
	case entry == nil:
		refuse(w, http.StatusNotFound)
	case kind == "metadata" && op == "read":
		data(w, "kv", metadataDoc(entry))
	case kind == "metadata" && op == "delete":
		delete(s.secrets[mount], name)
		w.WriteHeader(http.StatusNoContent)
	case kind == "data" && op == "delete":
		entry.versions[len(entry.versions)-1].deletedAt = time.Now()
		w.WriteHeader(http.StatusNoContent)
	case kind == "destroy" && op == "update":
		entry.versions[len(entry.versions)-1].destroyed = true
		w.WriteHeader(http.StatusNoContent)
	case kind == "data" && op == "read":
		newest := entry.versions[len(entry.versions)-1]
		data(w, "kv", map[string]any{"data": newest.values, "metadata": versionDoc(entry, len(entry.versions))})
	default:
		refuse(w, http.StatusMethodNotAllowed, "unsupported operation")
	}
}

func (s *Server) kv1(w http.ResponseWriter, op, mount, path string, body map[string]any) {
	entry := s.secrets[mount][path]
	switch {
	case op == "list":
		s.list(w, mount, path)
	case op == "update":
		s.secrets[mount][path] = &secret{versions: []version{{values: body, created: time.Now()}}}
		w.WriteHeader(http.StatusNoContent)
	case entry == nil:
		refuse(w, http.StatusNotFound)
	case op == "read":
		data(w, "kv", entry.versions[0].values)
	default:
		delete(s.secrets[mount], path)
		w.WriteHeader(http.StatusNoContent)
	}
}

// list gives names and folders directly below a folder, deleted ones too.
func (s *Server) list(w http.ResponseWriter, mount, folder string) {
	if folder != "" {
		folder += "/"
	}
	seen := map[string]bool{}
	for name := range s.secrets[mount] {
		rest, below := strings.CutPrefix(name, folder)
		if !below {
			continue
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper {
			rest = first + "/"
		}
		seen[rest] = true
	}
	if len(seen) == 0 {
		refuse(w, http.StatusNotFound)
		return
	}
	keys := make([]string, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	data(w, "kv", map[string]any{"keys": keys})
}

func deletionTime(v version) string {
	if v.deletedAt.IsZero() {
		return ""
	}
	return v.deletedAt.UTC().Format(stamp)
}

func versionDoc(e *secret, n int) map[string]any {
	v := e.versions[n-1]
	return map[string]any{"created_time": v.created.UTC().Format(stamp), "custom_metadata": nil, "deletion_time": deletionTime(v), "destroyed": v.destroyed, "version": n}
}

func metadataDoc(e *secret) map[string]any {
	versions := map[string]any{}
	for i, v := range e.versions {
		versions[fmt.Sprint(i+1)] = map[string]any{"created_time": v.created.UTC().Format(stamp), "deletion_time": deletionTime(v), "destroyed": v.destroyed}
	}
	first, last := e.versions[0], e.versions[len(e.versions)-1]
	return map[string]any{
		"versions": versions, "current_version": len(e.versions), "oldest_version": 0, "max_versions": 0, "cas_required": false, "delete_version_after": "0s",
		"custom_metadata": nil, "created_time": first.created.UTC().Format(stamp), "updated_time": last.created.UTC().Format(stamp),
	}
}
