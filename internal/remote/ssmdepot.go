package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"agentworks-deploy/internal/report"
)

// depotLife is how long an address reads its file.
const depotLife = 10 * time.Minute

// Put lays a file down in the host file's S3 bucket. Three signed addresses are
// all that is needed of S3, so its client stays out of the program.
func (c *ssmChannel) Put(ctx context.Context, name string, file io.Reader, size int64) (string, func(context.Context) error, error) {
	if c.way.Bucket == "" {
		return "", nil, report.Coded(report.ExitUsage, "%s.bucket is not set", c.key)
	}
	if err := c.find(ctx); err != nil {
		return "", nil, err
	}
	object := "agentworks-deploy/" + name
	remove := func(ctx context.Context) error {
		_, err := c.s3(ctx, http.MethodDelete, object, nil, 0)
		return err
	}
	unsure, err := c.s3(ctx, http.MethodPut, object, file, size)
	if err != nil {
		if !unsure {
			remove = nil
		}
		return "", remove, err
	}
	address, err := c.sign(ctx, http.MethodGet, object)
	return address, remove, err
}

// s3 calls S3 on one object. Unsure stands beside an error where S3 may have done
// what it was asked. The answer's text is not shown: it repeats the signed address.
func (c *ssmChannel) s3(ctx context.Context, method, object string, body io.Reader, size int64) (unsure bool, err error) {
	address, err := c.sign(ctx, method, object)
	if err != nil {
		return false, err
	}
	if body != nil {
		body = io.NopCloser(body) // the caller's to close
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return false, err
	}
	req.ContentLength = size
	answer, err := c.service.http.Do(req)
	if err != nil {
		if u, ok := err.(*url.Error); ok {
			err = u.Err
		}
		dial, ok := errors.AsType[*net.OpError](err)
		return !ok || dial.Op != "dial", report.Coded(report.ExitUnfinished, "%s bucket %s: %w", strings.ToLower(method), c.way.Bucket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		profile := c.way.Profile
		if profile == "" {
			profile = "default"
		}
		return false, report.Coded(report.ExitUnfinished, "%s %s in bucket %s: S3 answers %s: does the bucket exist in %s, and may profile %s use it?", strings.ToLower(method), object, c.way.Bucket, answer.Status, c.way.Region, profile)
	}
	return false, nil
}

// sign makes an address for one method on one object. AWS_ENDPOINT_URL_S3
// counts, as it does for AWS's own tools.
func (c *ssmChannel) sign(ctx context.Context, method, object string) (string, error) {
	cfg := c.service.config
	domain := awsDomain(cfg.Region)
	base := fmt.Sprintf("https://%s.s3.%s.%s/", c.way.Bucket, cfg.Region, domain)
	if strings.Contains(c.way.Bucket, ".") { // a wildcard certificate covers no dot
		base = fmt.Sprintf("https://s3.%s.%s/%s/", cfg.Region, domain, c.way.Bucket)
	}
	if other := os.Getenv("AWS_ENDPOINT_URL_S3"); other != "" {
		base = strings.TrimSuffix(other, "/") + "/" + c.way.Bucket + "/"
	}
	req, err := http.NewRequestWithContext(ctx, method, base+object+"?X-Amz-Expires="+strconv.Itoa(int(depotLife/time.Second)), nil)
	if err != nil {
		return "", err
	}
	credentials, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return "", c.service.explain(err, "sign an address in bucket "+c.way.Bucket)
	}
	signed, _, err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).
		PresignHTTP(ctx, aws.Credentials(credentials), req, "UNSIGNED-PAYLOAD", "s3", cfg.Region, time.Now())
	return signed, err
}
