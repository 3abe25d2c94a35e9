// Package awsconf loads the SDK's configuration the way all of Holdfast's
// programs want it: region, credentials and endpoint from the environment, one
// HTTP client that keeps enough connections for a worker's requests, bounded
// waits, and the SDK's standard retries, which are the adapters' only ones.
package awsconf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"holdfast/internal/aws/meter"
)

const (
	// idlePerHost keeps a connection for every call that one function has in
	// flight; Go's default of 2 would open and close them all the time.
	idlePerHost = 128

	// maxAttempts bounds one call, the first try included.
	maxAttempts = 5

	connectTimeout = 3 * time.Second
	tlsTimeout     = 5 * time.Second

	// headerTimeout bounds the wait for the beginning of an answer, and no more:
	// an object is read for as long as its lines take to replay.
	headerTimeout = 30 * time.Second
)

// Load reads the environment and shared files. It makes no call unless the
// credentials' source needs one. Load once: what it returns is shared.
func Load(ctx context.Context) (aws.Config, error) {
	sdk := awshttp.NewBuildableClient().
		WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns = 2 * idlePerHost
			t.MaxIdleConnsPerHost = idlePerHost
			t.TLSHandshakeTimeout = tlsTimeout
			t.ResponseHeaderTimeout = headerTimeout
			// AWS speaks HTTP/1.1. Left to choose, an endpoint of one's own may pick
			// HTTP/2 and put every call on one connection.
			t.ForceAttemptHTTP2 = false
			t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
			t.TLSClientConfig = t.TLSClientConfig.Clone()
			t.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}).
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(sdk), config.WithRetryMaxAttempts(maxAttempts))
	if err != nil {
		return aws.Config{}, fmt.Errorf("load AWS configuration: %w", err)
	}
	// Last: on the way there a CA bundle of the environment is put into the client.
	cfg.HTTPClient = client{cfg.HTTPClient}
	meter.Count(&cfg) // what is called under a record; a program that opens none pays nothing
	return cfg, nil
}
