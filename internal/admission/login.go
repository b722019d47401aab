package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/safefs"
)

// vaultDeadline bounds one request, its retries included; vaultLimit all of one
// scan.
const (
	vaultDeadline = 10 * time.Second
	vaultLimit    = time.Minute
)

// errNotConfigured says that a source of grants is not named anywhere.
var errNotConfigured = errors.New("not configured")

// connect makes a client that is logged in. What the host file leaves open is
// taken from lookup: the agent's environment, then one's own VAULT_*. logout
// ends a token made here and does nothing for one that was given.
func connect(ctx context.Context, c hosts.Vault, lookup func(string) string) (v *vault, logout func(), err error) {
	address := first(c.Address, lookup("VAULT_ADDR"))
	if address == "" {
		return nil, nil, errNotConfigured
	}
	cfg := api.DefaultConfig()
	if cfg.Error != nil {
		return nil, nil, cfg.Error
	}
	cfg.Address = address
	cfg.Timeout = vaultDeadline
	cfg.MinRetryWait, cfg.MaxRetryWait = 100*time.Millisecond, time.Second
	// Errors of these two may quote the environment, so their texts stay here.
	if err := cfg.ConfigureTLS(&api.TLSConfig{CACert: first(c.CA, lookup("VAULT_CACERT"))}); err != nil {
		return nil, nil, errors.New("vault.ca (or VAULT_CACERT) is no readable file of certificates")
	}
	if t, ok := cfg.HttpClient.Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = metadataAtOnce // else most requests would shake hands anew
	}
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil, nil, errors.New("vault.address (or VAULT_ADDR) is no address of a server")
	}
	if namespace := first(c.Namespace, lookup("VAULT_NAMESPACE")); namespace != "" {
		client.SetNamespace(namespace)
	}
	logout = func() {}
	switch {
	case c.TokenFile != "":
		token, err := secretFile(c.TokenFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read vault.token_file: %w", err)
		}
		client.SetToken(token)
	case c.AppRole != nil:
		if logout, err = login(ctx, client, c.AppRole); err != nil {
			return nil, nil, err
		}
	default:
		token := lookup("VAULT_TOKEN")
		if token == "" {
			return nil, nil, errors.New("no token: set vault.token_file or vault.approle in the host file, or VAULT_TOKEN")
		}
		client.SetToken(token)
	}
	return &vault{
		client: client,
		mount:  strings.Trim(first(c.Mount, "secret"), "/"),
		prefix: strings.Trim(c.Prefix, "/"),
		group:  c.PlatformGroup,
	}, logout, nil
}

func login(ctx context.Context, client *api.Client, role *hosts.AppRole) (logout func(), err error) {
	id, err := secretFile(role.RoleIDFile)
	if err != nil {
		return nil, fmt.Errorf("read vault.approle.role_id_file: %w", err)
	}
	secret, err := secretFile(role.SecretIDFile)
	if err != nil {
		return nil, fmt.Errorf("read vault.approle.secret_id_file: %w", err)
	}
	client.ClearToken()
	at := "auth/" + strings.Trim(first(role.Mount, "approle"), "/") + "/login"
	s, err := client.Logical().WriteWithContext(ctx, at, map[string]any{"role_id": id, "secret_id": secret})
	if err != nil {
		return nil, err
	}
	if s == nil || s.Auth == nil || s.Auth.ClientToken == "" {
		return nil, fmt.Errorf("%s gave no token", at)
	}
	client.SetToken(s.Auth.ClientToken)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), vaultDeadline)
		defer cancel()
		_ = client.Auth().Token().RevokeSelfWithContext(ctx, "") // it expires by itself otherwise
	}, nil
}

// maxSecretFile bounds what is read of a token's file.
const maxSecretFile = 64 << 10

// secretFile reads a file that holds one line; a final line end, of either
// kind, is not part of it (case B82). Its errors do not name the file, whose path
// may come from an environment.
func secretFile(name string) (string, error) {
	f, err := safefs.OpenFile(name)
	if err != nil {
		return "", unopened(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return "", reason(err)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return "", errors.New("it is empty")
	}
	return string(data), nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
