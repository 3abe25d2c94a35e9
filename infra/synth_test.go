package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"

	"holdfast/internal/config"
)

// One synth serves every test: so many stacks that each option is there both ways.
//
//   - Holdfast: as for an AWS account (arm64, data retained, secrets of the upstream
//     and of the service of jobs);
//   - Local: as for the local AWS (amd64, all destroyed, keys), with settings that
//     differ from their defaults;
//   - Shut: as for an account that has no use for the doors beside HTTP, nor for the
//     gateway;
//   - Own: its callers of upstreams in a VPC of their own;
//   - Placed: those in a VPC that is there, with some of the endpoints.
var (
	outdir  string
	account synthesized
	local   synthesized
	shut    synthesized
	own     synthesized
	placed  synthesized
)

// object is a JSON object.
type object = map[string]any

type synthesized struct {
	opts      options
	stack     awscdk.Stack
	template  assertions.Template
	resources map[string]resource // by logical id
	outputs   map[string]any
}

type resource struct {
	Type           string
	Properties     map[string]any
	DependsOn      any
	DeletionPolicy string
	Metadata       map[string]any
}

func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_TEST_RUN_APP") != "" {
		os.Exit(run()) // see TestRefusesBadConfiguration
	}
	code, err := synthesizeAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func synthesizeAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "holdfast-infra-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	defer jsii.Close()

	functions := filepath.Join(dir, "functions")
	for _, name := range []string{"api", "plan", "work", "finish", "reap", "ingest", "gateway"} {
		if err := os.MkdirAll(filepath.Join(functions, name), 0o755); err != nil {
			return 0, err
		}
		if err := os.WriteFile(filepath.Join(functions, name, "bootstrap"), []byte(name), 0o755); err != nil {
			return 0, err
		}
	}
	outdir = filepath.Join(dir, "out")
	app := newApp(outdir)
	if account.opts, err = parseOptions(vars(map[string]string{
		config.EnvUpstreamURL:    "https://models.example.com",
		config.EnvUpstreamSecret: "holdfast/upstream",
		config.EnvUpstreams: `[{"models":["gpt-*"],"url":"https://api.openai.com","secret":"holdfast/openai"},
			{"models":["llama"],"url":"http://10.0.0.7:8000"},{"models":["other"],"url":"https://models.example.com","secret":"holdfast/upstream"}]`,
		config.EnvJobsURL:    "https://jobs.example.com",
		config.EnvJobsSecret: "holdfast/jobs",
	}), vars(map[string]string{"functions": functions})); err != nil {
		return 0, err
	}
	if shut.opts, err = parseOptions(vars(map[string]string{config.EnvUpstreamURL: "https://models.example.com"}),
		vars(map[string]string{"functions": functions, "doors": "off", "gateway": "off"})); err != nil {
		return 0, err
	}
	if own.opts, err = parseOptions(vars(map[string]string{
		config.EnvUpstreamURL:    "https://bedrock-runtime.us-east-1.amazonaws.com/openai",
		config.EnvUpstreamSecret: "holdfast/bedrock",
		config.EnvUpstreams:      `[{"models":["llama"],"url":"http://10.0.0.7:8000"},{"models":["phi"],"url":"http://models.internal"}]`,
	}), vars(map[string]string{"functions": functions, "vpc": "new"})); err != nil {
		return 0, err
	}
	if placed.opts, err = parseOptions(vars(map[string]string{config.EnvUpstreamURL: "http://models.internal:8000"}), vars(map[string]string{
		"functions": functions, "doors": "off", "vpc": "vpc-0123456789abcdef0", "subnets": "subnet-0aaaaaaa, subnet-0bbbbbbb",
		"endpoints": "states,dynamodb,sqs", "routeTables": "rtb-0ccccccc",
	})); err != nil {
		return 0, err
	}
	if local.opts, err = parseOptions(vars(map[string]string{
		config.EnvUpstreamURL:       "http://127.0.0.1:9000",
		config.EnvUpstreamKey:       "sk-local",
		config.EnvUpstreamAllow:     "127.0.0.0/8,::1",
		config.EnvJobsURL:           "http://127.0.0.1:9001",
		config.EnvJobsKey:           "sk-jobs",
		"AWS_ENDPOINT_URL":          "https://127.0.0.1:4566",
		"HOLDFAST_LEASE":            "10s",
		"HOLDFAST_FUNCTION_TIMEOUT": "300s",
		"HOLDFAST_MAX_CONCURRENCY":  "7",
		"HOLDFAST_WORK_MEMORY":      "768",
		"HOLDFAST_RECEIVES":         "50",
		"HOLDFAST_RETENTION":        "96h",
		"HOLDFAST_WAIT_HEARTBEAT":   "1h",
		"HOLDFAST_WAIT_TIMEOUT":     "30h",
		"HOLDFAST_FILE_EXPIRY":      "745h",

		"HOLDFAST_SUBMIT_TIMEOUT":     "5s",
		"HOLDFAST_INGEST_CONCURRENCY": "3",
		"HOLDFAST_INGEST_RECEIVES":    "20",
	}), vars(map[string]string{"functions": functions, "architecture": "amd64", "removal": "destroy", "gateway": "12", "alarmEmail": "ops@example.com"})); err != nil {
		return 0, err
	}
	for name, s := range stacks {
		s.stack = newStack(app, name, s.opts)
	}
	for _, s := range stacks { // synthesizes all of them, at the first one
		s.template = assertions.Template_FromStack(s.stack, nil)
		if err := s.parse(); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

var stacks = map[string]*synthesized{stackName: &account, "Local": &local, "Shut": &shut, "Own": &own, "Placed": &placed}

func (s *synthesized) parse() error {
	text, err := json.Marshal(s.template.ToJSON())
	if err != nil {
		return err
	}
	var parsed struct {
		Resources map[string]resource
		Outputs   map[string]any
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		return err
	}
	s.resources, s.outputs = parsed.Resources, parsed.Outputs
	return nil
}

func vars(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

// has fails the test when no resource of the type has at least these properties.
func (s *synthesized) has(t *testing.T, resourceType string, properties map[string]any) {
	t.Helper()
	defer func() {
		if failure := recover(); failure != nil { // how jsii hands over an assertion's message
			t.Errorf("%v", failure)
		}
	}()
	s.template.HasResourceProperties(jsii.String(resourceType), properties)
}

// only returns the resource of the type whose logical id begins so; there must be
// exactly one.
func (s *synthesized) only(t *testing.T, resourceType, beginning string) resource {
	t.Helper()
	var found []resource
	for id, r := range s.resources {
		if r.Type == resourceType && strings.HasPrefix(id, beginning) {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d resources %s %s…, want 1", len(found), resourceType, beginning)
	}
	return found[0]
}

// plain writes a template value as text, with references by the beginning of
// their logical id (the hash at its end is cut): Table.Arn/index/tenant.
func plain(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok {
			return "${" + cut(ref) + "}"
		}
		if get, ok := v["Fn::GetAtt"].([]any); ok {
			return "${" + cut(get[0].(string)) + "." + get[1].(string) + "}"
		}
		if join, ok := v["Fn::Join"].([]any); ok {
			var parts []string
			for _, part := range join[1].([]any) {
				parts = append(parts, plain(part))
			}
			return strings.Join(parts, join[0].(string))
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was parsed from JSON
	}
	return string(text)
}

// cut removes the eight hexadecimal digits that CDK ends a logical id with.
func cut(id string) string {
	if len(id) <= 8 || strings.HasPrefix(id, "AWS::") {
		return id
	}
	hash := id[len(id)-8:]
	if strings.Trim(hash, "0123456789ABCDEF") != "" {
		return id
	}
	return id[:len(id)-8]
}

// list makes a slice of a template value that may be a single one.
func list(value any) []any {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{value}
}

// same fails the test unless both are equal as JSON.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	w, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s\n got %s\nwant %s", what, g, w)
	}
}

func TestOutputs(t *testing.T) {
	for _, name := range []string{
		"ApiUrl", "TableName", "InputsBucketName", "ResultsBucketName", "WorkQueueUrl", "DeadLetterQueueUrl", "StateMachineArn",
		"ApiFunctionName", "PlanFunctionName", "WorkFunctionName", "FinishFunctionName", "ReapFunctionName", "AlarmTopicArn",
		"IngestQueueUrl", "IngestDeadLettersUrl", "IngestFunctionName", "GatewayUrl", "GatewayFunctionName",
	} {
		if account.outputs[name] == nil {
			t.Errorf("no output %s", name)
		}
	}
	if len(account.outputs) != 18 {
		t.Errorf("%d outputs, 18 are known", len(account.outputs))
	}
}
