// Package vaulttest is a Vault for the tests: a stand-in that answers the
// endpoints this project and its test fixtures use with the documents of a real
// server, and enforces its tokens' policies. Only tests import it. Whatever
// passes on it must pass on a real server too; Servers gives both.
package vaulttest

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Server is the stand-in. Its zero value is not usable; see New.
type Server struct {
	mu       sync.Mutex
	root     string
	mounts   map[string]string             // "secret" → KV version
	secrets  map[string]map[string]*secret // mount → path → versions
	policies map[string]string             // name → text
	groups   map[string]*group             // id → group
	tokens   map[string][]string           // token → policies
	approles map[string]*approle           // name → role
}

type secret struct{ versions []version }

type version struct {
	values             map[string]any
	created, deletedAt time.Time
	destroyed          bool
}

type group struct {
	id, name          string
	policies, members []string
}

type approle struct {
	id       string
	secrets  map[string]bool
	policies []string
}

// New makes an empty, unsealed server with a root token.
func New() *Server {
	s := &Server{
		root: "hvs." + rand.Text(), mounts: map[string]string{}, secrets: map[string]map[string]*secret{},
		policies: map[string]string{"default": ""}, groups: map[string]*group{}, tokens: map[string][]string{}, approles: map[string]*approle{},
	}
	s.tokens[s.root] = []string{"root"}
	return s
}

// RootToken may do everything.
func (s *Server) RootToken() string { return s.root }

// ServeHTTP answers the v1 API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ok {
		refuse(w, http.StatusNotFound)
		return
	}
	path = strings.TrimSuffix(path, "/")
	op := operation(r)
	var body map[string]any
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	if path == "sys/health" {
		answer(w, http.StatusOK, map[string]any{"initialized": true, "sealed": false, "standby": false, "version": "1.21.4"})
		return
	}
	if strings.HasPrefix(path, "auth/approle/login") {
		s.appRoleLogin(w, body)
		return
	}
	policies, known := s.tokens[r.Header.Get("X-Vault-Token")]
	if !known {
		refuse(w, http.StatusForbidden, "permission denied", "invalid token")
		return
	}
	if !s.selfService(path) && !s.allowed(policies, path, op) {
		refuse(w, http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
		return
	}
	s.route(w, r, op, path, body, policies)
}

// operation maps HTTP onto Vault's capabilities; create and update are one
// here, as no fixture tells them apart.
func operation(r *http.Request) string {
	switch {
	case r.Method == "LIST", r.Method == http.MethodGet && r.URL.Query().Get("list") == "true":
		return "list"
	case r.Method == http.MethodGet:
		return "read"
	case r.Method == http.MethodDelete:
		return "delete"
	}
	return "update"
}

// selfService are the paths that Vault's default policy gives every token, and
// the mount probe, which checks rights below the mount by itself.
func (s *Server) selfService(path string) bool {
	return slices.Contains([]string{"sys/capabilities-self", "auth/token/lookup-self", "auth/token/revoke-self"}, path) ||
		strings.HasPrefix(path, "sys/internal/ui/mounts/")
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, op, path string, body map[string]any, policies []string) {
	switch {
	case strings.HasPrefix(path, "sys/"):
		s.sys(w, op, strings.TrimPrefix(path, "sys/"), body, policies)
	case strings.HasPrefix(path, "identity/group"):
		s.identity(w, op, strings.TrimPrefix(path, "identity/group"), body)
	case strings.HasPrefix(path, "auth/"):
		s.auth(w, r, op, strings.TrimPrefix(path, "auth/"), body, policies)
	default:
		mount, rest, _ := strings.Cut(path, "/")
		switch s.mounts[mount] {
		case "2":
			s.kv2(w, op, mount, rest, body)
		case "1":
			s.kv1(w, op, mount, rest, body)
		default:
			refuse(w, http.StatusNotFound, "no handler for route \""+path+"\". route entry not found.")
		}
	}
}

func (s *Server) auth(w http.ResponseWriter, r *http.Request, op, path string, body map[string]any, policies []string) {
	token := r.Header.Get("X-Vault-Token")
	switch {
	case path == "token/create":
		s.grantToken(w, stringList(body["policies"]))
	case path == "token/lookup-self":
		data(w, "token", map[string]any{"policies": policies, "ttl": 3600, "renewable": true})
	case path == "token/revoke-self":
		delete(s.tokens, token)
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(path, "approle/role/"):
		s.appRole(w, op, strings.TrimPrefix(path, "approle/role/"), body)
	default:
		refuse(w, http.StatusNotFound, "no handler for route \"auth/"+path+"\". route entry not found.")
	}
}

func (s *Server) grantToken(w http.ResponseWriter, policies []string) {
	token := "hvs." + rand.Text()
	s.tokens[token] = append([]string{"default"}, policies...)
	envelope(w, map[string]any{"auth": map[string]any{"client_token": token, "accessor": rand.Text(), "policies": s.tokens[token], "token_policies": s.tokens[token], "lease_duration": 3600, "renewable": true, "token_type": "service"}})
}

func (s *Server) appRole(w http.ResponseWriter, op, path string, body map[string]any) {
	name, what, _ := strings.Cut(path, "/")
	role := s.approles[name]
	if role == nil {
		role = &approle{id: rand.Text(), secrets: map[string]bool{}}
		s.approles[name] = role
	}
	switch {
	case what == "role-id" && op == "read":
		data(w, "approle", map[string]any{"role_id": role.id})
	case what == "secret-id":
		id := rand.Text()
		role.secrets[id] = true
		data(w, "approle", map[string]any{"secret_id": id, "secret_id_accessor": rand.Text()})
	default:
		role.policies = stringList(body["token_policies"])
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) appRoleLogin(w http.ResponseWriter, body map[string]any) {
	for _, role := range s.approles {
		if secret, _ := body["secret_id"].(string); role.id == body["role_id"] && role.secrets[secret] {
			s.grantToken(w, role.policies)
			return
		}
	}
	refuse(w, http.StatusBadRequest, "invalid role or secret ID")
}

func answer(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func refuse(w http.ResponseWriter, status int, errors ...string) {
	if errors == nil {
		errors = []string{}
	}
	answer(w, status, map[string]any{"errors": errors})
}

// envelope is the frame of every answer with data.
func envelope(w http.ResponseWriter, fields map[string]any) {
	doc := map[string]any{"request_id": rand.Text(), "lease_id": "", "renewable": false, "lease_duration": 0, "data": nil, "wrap_info": nil, "warnings": nil, "auth": nil}
	maps.Copy(doc, fields)
	answer(w, http.StatusOK, doc)
}

func data(w http.ResponseWriter, mountType string, d map[string]any) {
	envelope(w, map[string]any{"data": d, "mount_type": mountType})
}

func stringList(v any) []string {
	switch v := v.(type) {
	case string:
		return strings.Split(v, ",")
	case []any:
		var out []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}
