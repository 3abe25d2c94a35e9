package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// collect gives the first items that a query finds, at most so many, each as of makes
// it: ask for one more than a page has to learn whether there is another.
func collect[I versioned, T any](ctx context.Context, t *table, q *dynamodb.QueryInput, most int, of func(I) T) (found []T, err error) {
	q.TableName, q.Limit = &t.name, aws.Int32(int32(most))
	pages := dynamodb.NewQueryPaginator(t.client, q)
	for pages.HasMorePages() && len(found) < most {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Items {
			i, err := decode[I](a)
			if err != nil {
				return nil, err
			}
			found = append(found, of(i))
		}
	}
	return found[:min(len(found), most)], nil
}
