package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// IAM is enforced for functions: an action that the work function's role was
// not granted is denied when it is tried from a function with that role, and a
// granted one is not. Without this, every green test here could be green only
// because the local AWS let everything through.
func TestCanaryAnUngrantedActionIsDenied(t *testing.T) {
	t.Parallel()
	functions := lambda.NewFromConfig(awsConfig(t))
	work := workFunction(t, functions)
	name := "holdfast-canary-" + time.Now().UTC().Format("20060102150405.000000")[:14]
	_, err := functions.CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &name, Role: work.Role, Runtime: lambdatypes.RuntimeProvidedal2023, Handler: aws.String("bootstrap"),
		Architectures: work.Architectures, Timeout: aws.Int32(30), MemorySize: aws.Int32(128),
		Code:        &lambdatypes.FunctionCode{ZipFile: canary(t)},
		Environment: &lambdatypes.Environment{Variables: work.Environment.Variables},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := functions.DeleteFunction(t.Context(), &lambda.DeleteFunctionInput{FunctionName: &name}); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	out, err := functions.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &name, Payload: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	if out.FunctionError != nil {
		t.Fatalf("%s: %s", *out.FunctionError, out.Payload)
	}
	var got map[string]string
	if err := json.Unmarshal(out.Payload, &got); err != nil {
		t.Fatalf("%v: %s", err, out.Payload)
	}
	for action, want := range map[string]string{
		"dynamodb:UpdateItem":       "allowed",
		"s3:PutObject parts":        "allowed",
		"dynamodb:DeleteItem":       "denied",
		"dynamodb:Scan":             "denied",
		"s3:PutObject out":          "denied",
		"s3:GetObject parts":        "denied",
		"sqs:PurgeQueue":            "denied",
		"states:StartExecution":     "denied",
		"secretsmanager:ListSecret": "denied",
	} {
		if !strings.HasPrefix(got[action], want) {
			t.Errorf("%s: %q, want %s", action, got[action], want)
		}
	}
}

// workFunction is the function that the work queue feeds.
func workFunction(t *testing.T, functions *lambda.Client) *lambda.GetFunctionConfigurationOutput {
	t.Helper()
	queue, err := sqs.NewFromConfig(awsConfig(t)).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(env(t, "HOLDFAST_WORK_QUEUE_URL")), AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatal(err)
	}
	arn := queue.Attributes[string(sqstypes.QueueAttributeNameQueueArn)]
	fed, err := functions.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{EventSourceArn: &arn})
	if err != nil || len(fed.EventSourceMappings) != 1 {
		t.Fatalf("who is fed by %s: %v, %v", arn, fed, err)
	}
	work, err := functions.GetFunctionConfiguration(t.Context(), &lambda.GetFunctionConfigurationInput{FunctionName: fed.EventSourceMappings[0].FunctionArn})
	if err != nil {
		t.Fatal(err)
	}
	return work
}

// canary builds ./canary into a function's zip.
func canary(t *testing.T) []byte {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bootstrap")
	cmd := exec.Command("go", "build", "-tags", "lambda.norpc", "-o", bin, "./canary")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	h := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate}
	h.SetMode(0o755)
	w, err := z.CreateHeader(h)
	if err == nil {
		_, err = w.Write(program)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
