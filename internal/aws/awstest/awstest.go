// Package awstest gives the adapters' tests an emulated AWS. For tests only.
//
// The tests make what they need (a table, a bucket, a queue) beside the deployed
// stack and remove it afterwards; they never touch the stack's own.
package awstest

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"holdfast/internal/aws/awsconf"
)

// Config is what the environment says, as the functions load it. Without an
// emulator the test fails: one that is skipped proves nothing, and one that ran
// against a real account would cost money.
func Config(t testing.TB) aws.Config {
	t.Helper()
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if os.Getenv(name) == "" {
			t.Fatalf("%s is not set: this test needs the emulator; run it through make test", name)
		}
	}
	cfg, err := awsconf.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Name is a name for a resource that nobody else has: of lower-case letters and
// digits, at most 40 bytes.
func Name(kind string) string { return "test-" + kind + "-" + strings.ToLower(rand.Text()) }

// Server is a configuration whose endpoint is h, in process, for answers that no
// emulator gives. One try a call, unless a test sets more.
func Server(t testing.TB, h http.Handler) aws.Config {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return aws.Config{
		Region:           "us-east-1",
		BaseEndpoint:     &srv.URL,
		HTTPClient:       srv.Client(),
		RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}
