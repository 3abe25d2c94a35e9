package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
)

// raw is a look past the ports, and a hand past every condition.
type raw struct {
	client *dynamodb.Client
	name   string
}

func (r raw) put(ctx context.Context, item any) error {
	a, err := encode(item)
	if err != nil {
		return err
	}
	_, err = r.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &r.name, Item: a})
	return err
}

// seed stores a part exactly as given, whatever was there: the states that no
// port writes yet.
func (r raw) seed(ctx context.Context, p batch.Part) error { return r.put(ctx, newPartItem(p)) }

// set gives an item one more attribute, or another value for it.
func (r raw) set(ctx context.Context, k key, name string, v types.AttributeValue) error {
	a, err := r.item(ctx, k)
	if err != nil {
		return err
	}
	a[name] = v
	_, err = r.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &r.name, Item: a})
	return err
}

func (r raw) item(ctx context.Context, k key) (attributes, error) {
	out, err := r.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &r.name, Key: k.attributes()})
	if err != nil {
		return nil, err
	}
	if out.Item == nil {
		return nil, fmt.Errorf("no item %v", k)
	}
	return out.Item, nil
}
