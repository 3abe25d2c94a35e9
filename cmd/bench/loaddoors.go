package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"

	"holdfast/internal/access"
	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/bench"
	"holdfast/internal/bridge"
	"holdfast/internal/config"
)

// doors measures the doors beside HTTP: on the deployed stack from an object to its
// batch, and the drain itself in this process, on the local services.
func (r *loadRun) doors(ctx context.Context) ([]figure, error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	dropped, err := r.drops(ctx, cfg)
	if err != nil {
		return dropped, fmt.Errorf("objects: %w", err)
	}
	drained, err := r.drains(ctx, cfg)
	return append(dropped, drained...), err
}

// drops puts objects one after the other, and looks for the batch of each.
func (r *loadRun) drops(ctx context.Context, cfg aws.Config) ([]figure, error) {
	const puts, bound = 10, 2
	table, bucket := dynamo.Open(cfg, os.Getenv(config.EnvTable)), os.Getenv(config.EnvInputsBucket)
	tenant, now := fmt.Sprintf("bench-%d", time.Now().UnixMilli()), time.Now()
	_, err := access.ChangeTenant(ctx, table.Tenants, tenant, true, now, func(t *access.Tenant) error {
		t.EnableDrop("bench@example.com", loadEndpoint, "24h", now)
		return nil
	})
	if err != nil {
		return nil, err
	}
	store := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	data := loadInput("sim", 20)
	var took []float64
	for n := range puts {
		key := fmt.Sprintf("in/%s/%d.jsonl", tenant, n)
		began := time.Now()
		put, err := store.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(data)})
		if err != nil {
			return nil, err
		}
		o := bridge.Object{Bucket: bucket, Key: key, Version: aws.ToString(put.VersionId)}
		id := bridge.BatchID(tenant, o.CorrelationID())
		err = every(ctx, 10*time.Millisecond, func() (bool, error) {
			_, err := table.Batches.Get(ctx, tenant, id)
			if errors.Is(err, batch.ErrNotFound) {
				return false, nil
			}
			return true, err
		})
		if err != nil {
			return nil, fmt.Errorf("no batch of %s: %w", key, err)
		}
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	name := fmt.Sprintf("object put to batch created, median of %d", puts)
	return under(name,
		atMost(name, middle(took), bound, "s"),
		atMost("  the slowest", took[len(took)-1], bound, "s")), nil
}

// counting is a table's client that counts its calls.
type counting struct {
	*dynamodb.Client
	calls atomic.Int64
}

// since is how many there were since it was last asked.
func (c *counting) since() float64 { return float64(c.calls.Swap(0)) }

func (c *counting) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	c.calls.Add(1)
	return c.Client.GetItem(ctx, in, o...)
}

func (c *counting) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	c.calls.Add(1)
	return c.Client.PutItem(ctx, in, o...)
}

func (c *counting) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	c.calls.Add(1)
	return c.Client.UpdateItem(ctx, in, o...)
}

func (c *counting) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	c.calls.Add(1)
	return c.Client.DeleteItem(ctx, in, o...)
}

func (c *counting) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	c.calls.Add(1)
	return c.Client.Query(ctx, in, o...)
}

// drains times messages, bare submits and duplicates, on a table and a state machine
// of its own: nobody is to run thousands of batches.
func (r *loadRun) drains(ctx context.Context, cfg aws.Config) (_ []figure, err error) {
	const n, duplicates = 1_000, 2_000
	name := fmt.Sprintf("holdfast-bench-%d", time.Now().UnixMilli())
	client := &counting{Client: dynamodb.NewFromConfig(cfg)}
	if err := makeTable(ctx, client.Client, name); err != nil {
		return nil, err
	}
	defer func() {
		_, derr := client.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &name})
		err = errors.Join(err, derr)
	}()
	machines := sfn.NewFromConfig(cfg)
	deployed, err := machines.DescribeStateMachine(ctx, &sfn.DescribeStateMachineInput{StateMachineArn: aws.String(os.Getenv(config.EnvStateMachineARN))})
	if err != nil {
		return nil, err
	}
	made, err := machines.CreateStateMachine(ctx, &sfn.CreateStateMachineInput{
		Name: &name, RoleArn: deployed.RoleArn,
		Definition: aws.String(`{"StartAt":"Nothing","States":{"Nothing":{"Type":"Pass","End":true}}}`),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		_, derr := machines.DeleteStateMachine(context.WithoutCancel(ctx), &sfn.DeleteStateMachineInput{StateMachineArn: made.StateMachineArn})
		err = errors.Join(err, derr)
	}()
	table := dynamo.New(client, name)
	d, err := bench.NewDrain(ctx, bench.DrainPorts{
		Batches: table.Batches, Files: table.Files, Store: table.Bridge, Workflow: workflow.New(cfg, *made.StateMachineArn),
	}, "bench", time.Now())
	if err != nil {
		return nil, err
	}
	client.since()
	bare, err := d.Bare(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("bare submits: %w", err)
	}
	ofBare := client.since() / n
	drained, err := d.Messages(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	ofMessage := client.since() / n
	if err := d.Claim(ctx); err != nil {
		return nil, err
	}
	client.since()
	again, err := d.Duplicates(ctx, duplicates)
	if err != nil {
		return nil, fmt.Errorf("duplicates: %w", err)
	}
	messages := counted(n, "drained messages")
	return append([]figure{
		atLeast("duplicates refused", duplicates/again.Seconds(), 200, "a second"),
		atMost("  table calls of each", client.since()/duplicates, 2, ""),
	}, under(messages,
		unbounded(messages, drained.Seconds(), "s"),
		unbounded("  as many bare submits", bare.Seconds(), "s"),
		unbounded("  times the bare submits", drained.Seconds()/bare.Seconds(), ""),
		atMost("  table calls of a message beyond a bare submit's", ofMessage-ofBare, 2, ""),
	)...), nil
}

// makeTable makes a table like the deployed one.
func makeTable(ctx context.Context, client *dynamodb.Client, name string) error {
	attribute := func(name string, kind types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: kind}
	}
	keys := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange}}
	}
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest, KeySchema: keys("pk", "sk"),
		AttributeDefinitions: []types.AttributeDefinition{
			attribute("pk", types.ScalarAttributeTypeS), attribute("sk", types.ScalarAttributeTypeS),
			attribute("due_pk", types.ScalarAttributeTypeS), attribute("due_at", types.ScalarAttributeTypeN),
			attribute("tenant_pk", types.ScalarAttributeTypeS), attribute("tenant_sk", types.ScalarAttributeTypeS),
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			{IndexName: aws.String("due"), KeySchema: keys("due_pk", "due_at"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}},
			{IndexName: aws.String("tenant"), KeySchema: keys("tenant_pk", "tenant_sk"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll}},
		},
	})
	return err
}
