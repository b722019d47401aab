package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	gatewayDeadline = 5 * time.Second
	gatewayMinToken = 32
	gatewayMaxBody  = 8 << 20
	gatewayActor    = "deploy-self-test"
	platformSpace   = "w1" // the workspace whose everyone-group is the Platform group
)

// platformGroup is the gateway's id of the Platform group.
func platformGroup() string {
	sum := sha256.Sum256([]byte(platformSpace))
	return "everyone-" + hex.EncodeToString(sum[:])[:24]
}

// askGateway returns the names that the Platform group was granted; lookup
// gives the agent's environment. Its errors name neither address nor token.
func askGateway(ctx context.Context, lookup func(string) string) (map[string]bool, error) {
	base := lookup("CAPLAYER_SERVICE_URL")
	if base == "" {
		return nil, errNotConfigured
	}
	token := lookup("CAPLAYER_SERVICE_TOKEN")
	if file := lookup("CAPLAYER_SERVICE_TOKEN_FILE"); file != "" {
		var err error
		if token, err = secretFile(file); err != nil {
			return nil, fmt.Errorf("the token file of CAPLAYER_SERVICE_TOKEN_FILE cannot be read: %w", err)
		}
	}
	if len(token) < gatewayMinToken {
		return nil, fmt.Errorf("the gateway's token is shorter than %d characters", gatewayMinToken)
	}
	at, err := url.JoinPath(base, "api/admin/groups", platformGroup(), "secrets")
	if err != nil {
		return nil, errors.New("CAPLAYER_SERVICE_URL is no URL")
	}
	ctx, cancel := context.WithTimeout(ctx, gatewayDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errors.New("CAPLAYER_SERVICE_URL is no URL")
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-CapLayer-Actor", gatewayActor)
	// A redirect would carry the token elsewhere.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("the gateway did not answer within %s", gatewayDeadline)
		}
		return nil, errors.New("the gateway cannot be reached: " + netCause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway answered %d", resp.StatusCode)
	}
	var doc struct {
		Secrets []struct {
			Name string `json:"name"`
		} `json:"secrets"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, gatewayMaxBody)).Decode(&doc); err != nil || doc.Secrets == nil {
		return nil, errors.New("the gateway's answer is not the expected document")
	}
	granted := make(map[string]bool, len(doc.Secrets))
	for _, s := range doc.Secrets {
		granted[strings.TrimSuffix(s.Name, "\r")] = true
	}
	return granted, nil
}
