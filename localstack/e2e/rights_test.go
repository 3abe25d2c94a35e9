package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
)

// asFunction is the configuration of somebody with the deployed function's role.
func asFunction(t *testing.T, name string) aws.Config {
	t.Helper()
	cfg := awsConfig(t)
	pages := lambda.NewListFunctionsPaginator(lambda.NewFromConfig(cfg), &lambda.ListFunctionsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Functions {
			if !strings.HasPrefix(*f.FunctionName, "Holdfast-"+strings.ToUpper(name[:1])+name[1:]) {
				continue
			}
			out, err := sts.NewFromConfig(cfg).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: f.Role, RoleSessionName: aws.String("e2e")})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c := out.Credentials
			cfg.Logger = logging.Nop{} // a refusal has no checksum, which the SDK warns of
			cfg.Credentials = credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
			return cfg
		}
	}
	t.Fatalf("no function %s", name)
	return cfg
}

// The local AWS lets each function do what its role may, and nothing else: what the
// other tests see of the stack means something. Which items of the table a role may
// have it doesn't look at; those rights are held to the template, as all are, in infra.
func TestRightsAreEnforced(t *testing.T) {
	t.Parallel()
	two := second(t)
	table, results := env(t, "HOLDFAST_TABLE"), env(t, "HOLDFAST_RESULTS_BUCKET")
	scan := func(ctx context.Context, cfg aws.Config) error {
		_, err := dynamodb.NewFromConfig(cfg).Scan(ctx, &dynamodb.ScanInput{TableName: &table, Limit: aws.Int32(1)})
		return err
	}
	chunk := func(ctx context.Context, cfg aws.Config) error {
		_, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).GetObject(ctx, &s3.GetObjectInput{Bucket: &results, Key: aws.String("none/parts/none/0/none-0.jsonl")})
		return err
	}
	secret := func(ctx context.Context, cfg aws.Config) error {
		_, err := secretsmanager.NewFromConfig(cfg).GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &two.secret})
		return err
	}
	all := []string{"api", "plan", "work", "finish", "reap", "ingest", "gateway"}
	for what, c := range map[string]struct {
		do  func(context.Context, aws.Config) error
		may string // functions
	}{
		"look through the table":   {scan, ""},
		"read a chunk":             {chunk, "finish"},
		"read an upstream's token": {secret, "work gateway"},
	} {
		for _, function := range all {
			err := c.do(t.Context(), asFunction(t, function))
			e, failed := errors.AsType[smithy.APIError](err)
			denied := failed && strings.Contains(e.ErrorCode(), "AccessDenied")
			if may := strings.Contains(" "+c.may+" ", " "+function+" "); denied == may || failed && !denied && e.ErrorCode() != "NoSuchKey" {
				t.Errorf("%s may %s: want %v, got %v", function, what, may, fmt.Sprint(err))
			}
		}
	}
}
