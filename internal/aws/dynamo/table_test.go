package dynamo

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/aws/awstest"
)

// newTable makes a table of the test's own, with the keys and indexes that the
// infra app gives the deployed one.
func newTable(t *testing.T) (*dynamodb.Client, string) {
	t.Helper()
	client := dynamodb.NewFromConfig(awstest.Config(t))
	name := awstest.Name("table")
	attribute := func(name string, kind types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: kind}
	}
	schema := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange},
		}
	}
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			attribute("pk", types.ScalarAttributeTypeS), attribute("sk", types.ScalarAttributeTypeS),
			attribute("due_pk", types.ScalarAttributeTypeS), attribute("due_at", types.ScalarAttributeTypeN),
			attribute("tenant_pk", types.ScalarAttributeTypeS), attribute("tenant_sk", types.ScalarAttributeTypeS),
		},
		KeySchema: schema("pk", "sk"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			{IndexName: aws.String("due"), KeySchema: schema("due_pk", "due_at"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}},
			{IndexName: aws.String("tenant"), KeySchema: schema("tenant_pk", "tenant_sk"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
			t.Errorf("delete table: %v", err)
		}
	})
	return client, name
}
