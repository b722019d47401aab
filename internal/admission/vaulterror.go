package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/hashicorp/vault/api"

	"agentworks-deploy/internal/report"
)

func statusOf(err error) int {
	var r *api.ResponseError
	if errors.As(err, &r) {
		return r.StatusCode
	}
	return 0
}

// refusalState: a missing right is something to mend and a WARN; a server that
// cannot be asked just now is INFO.
func refusalState(err error) report.State {
	if statusOf(err) == http.StatusForbidden && !tokenIsDead(err) {
		return report.Warn
	}
	return report.Info
}

// tokenIsDead: Vault says 403 both for a missing right and for a token that it
// does not know or that has expired; only its text tells them apart.
func tokenIsDead(err error) bool {
	return strings.Contains(joined(err), "invalid token") || strings.Contains(joined(err), "bad token")
}

func joined(err error) string {
	var r *api.ResponseError
	if errors.As(err, &r) {
		return strings.Join(r.Errors, "; ")
	}
	return ""
}

// explain is one line on why a request failed and what to do, without the
// server's address, which the host file has, and without anything it quoted.
// For a refusal it names the API path and the capability that is missing (case
// B75).
func explain(err error, capability, apiPath string) string {
	var certificate *tls.CertificateVerificationError
	switch status := statusOf(err); {
	case status == http.StatusForbidden && tokenIsDead(err):
		return "the token is expired or unknown to the server; log in again and renew the token file"
	case status == http.StatusForbidden:
		return fmt.Sprintf("permission denied: the token's policies lack %q on %s", capability, apiPath)
	case status == http.StatusServiceUnavailable:
		return "Vault is sealed or not yet ready; unseal it"
	case status == http.StatusTooManyRequests, status == 472, status == 473:
		return "this Vault node is a standby that does not answer; name the active node or the load balancer in vault.address"
	case status == http.StatusBadRequest && capability == "update":
		return fmt.Sprintf("Vault refuses the login at %s; renew the role's secret id", apiPath)
	case status == http.StatusNotFound:
		return fmt.Sprintf("there is no route %s; is vault.mount right?", apiPath)
	case status != 0:
		return fmt.Sprintf("Vault answered %d on %s", status, apiPath)
	case errors.As(err, &certificate):
		return "Vault's certificate is not trusted; set vault.ca to its CA file"
	case errors.Is(err, context.DeadlineExceeded):
		return "Vault did not answer in time"
	case errors.Is(err, context.Canceled):
		return "stopped"
	}
	var request *url.Error
	if errors.As(err, &request) {
		return "Vault cannot be asked: " + netCause(err)
	}
	return err.Error()
}

// netCause says why a connection failed, in words that hold nothing of the
// address it went to: that may come from an environment, with whatever is in it.
func netCause(err error) string {
	var (
		errno       syscall.Errno
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		network     net.Error
	)
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &name):
		return "its name cannot be resolved"
	case errors.As(err, &certificate):
		return "its certificate is not trusted"
	case errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was cut"
	}
	return "no usable answer"
}
