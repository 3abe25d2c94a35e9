package awsconf

import (
	"os/exec"
	"strings"
	"testing"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

func TestTransport(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	cfg, err := Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Region != "eu-central-1" || cfg.RetryMaxAttempts != maxAttempts {
		t.Errorf("region %q, %d attempts", cfg.Region, cfg.RetryMaxAttempts)
	}
	ours, ok := cfg.HTTPClient.(client)
	if !ok {
		t.Fatalf("HTTP client is a %T", cfg.HTTPClient)
	}
	client, ok := ours.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		t.Fatalf("within it is a %T", ours.HTTPClient)
	}
	if client.GetTimeout() != 0 {
		t.Errorf("a call as a whole is cut after %v: an object is read for as long as its lines take", client.GetTimeout())
	}
	tr := client.GetTransport()
	if tr.MaxIdleConnsPerHost < 64 || tr.MaxIdleConns < tr.MaxIdleConnsPerHost {
		t.Errorf("%d idle connections, %d a host", tr.MaxIdleConns, tr.MaxIdleConnsPerHost)
	}
	if tr.ResponseHeaderTimeout == 0 || tr.TLSHandshakeTimeout == 0 {
		t.Error("a wait is not bounded")
	}
	if tr.ForceAttemptHTTP2 || tr.TLSNextProto == nil || strings.Join(tr.TLSClientConfig.NextProtos, " ") != "http/1.1" {
		t.Error("HTTP/2 may be chosen")
	}
}

// owners are the only packages that import an SDK client outside tests.
var owners = map[string]string{
	"dynamodb": "dynamo", "s3": "objects", "sqs": "queue", "sfn": "workflow", "secretsmanager": "secrets",
	"cloudwatchlogs": "logs",
}

func TestOnlyImporters(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "holdfast/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(fields[0], "holdfast/localstack/") || fields[0] == "holdfast/cmd/bench" {
			continue // programs that try a stack, which must call what nothing else may
		}
		for _, path := range fields[1:] {
			_, service, is := strings.Cut(path, "github.com/aws/aws-sdk-go-v2/service/")
			if !is {
				continue
			}
			service, _, _ = strings.Cut(service, "/")
			if fields[0] != "holdfast/internal/aws/"+owners[service] {
				t.Errorf("%s imports the client of %s", fields[0], service)
			}
			seen++
		}
	}
	if seen < len(owners) {
		t.Errorf("only %d imports of clients seen: the look-out must be broken", seen)
	}
}
