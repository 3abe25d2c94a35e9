package awstest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Role makes a role that this service may assume and that may do nothing, and
// returns its ARN. IAM's own client would be a module for this alone.
func Role(t testing.TB, cfg aws.Config, service string) string {
	t.Helper()
	name := Name("role")
	iam(t.Context(), t, cfg, url.Values{
		"Action": {"CreateRole"}, "RoleName": {name},
		"AssumeRolePolicyDocument": {fmt.Sprintf(
			`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":%q},"Action":"sts:AssumeRole"}]}`, service)},
	})
	t.Cleanup(func() {
		// The test's own context is over by now.
		iam(context.WithoutCancel(t.Context()), t, cfg, url.Values{"Action": {"DeleteRole"}, "RoleName": {name}})
	})
	return "arn:aws:iam::000000000000:role/" + name
}

func iam(ctx context.Context, t testing.TB, cfg aws.Config, form url.Values) {
	t.Helper()
	form.Set("Version", "2010-05-08")
	body := form.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("AWS_ENDPOINT_URL")+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	creds, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(ctx, creds, req, hex.EncodeToString(sum[:]), "iam", cfg.Region, time.Now()); err != nil {
		t.Fatal(err)
	}
	resp, err := cfg.HTTPClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s: %s", form.Get("Action"), resp.Status, text)
	}
}
