package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"holdfast/internal/batch"
)

var _ batch.Files = (*Files)(nil)

// Files is batch.Files.
type Files struct{ t *table }

// Put implements batch.Files.
func (s *Files) Put(ctx context.Context, f batch.File) error {
	want := newFileItem(f)
	out, err := s.t.insert(ctx, want, insertFile())
	if err == nil && out.refused {
		var found fileItem
		if found, err = decode[fileItem](out.item); err == nil && !found.same(want) {
			err = batch.ErrExists
		}
	}
	if err != nil {
		return fileErr("put", f.Tenant, f.ID, err)
	}
	return nil
}

// Get implements batch.Files.
func (s *Files) Get(ctx context.Context, tenant, id string) (batch.File, error) {
	i, err := s.get(ctx, tenant, id)
	if err == nil && i.DeletedAt != 0 {
		err = batch.ErrDeleted
	}
	if err != nil {
		return batch.File{}, fileErr("get", tenant, id, err)
	}
	return i.file(), nil
}

// get reads an item, whether or not the file was deleted.
func (s *Files) get(ctx context.Context, tenant, id string) (fileItem, error) {
	if !storable(id) {
		return fileItem{}, batch.ErrNotFound
	}
	a, err := s.t.get(ctx, fileKey(tenant, id))
	if err != nil {
		return fileItem{}, err
	}
	return decode[fileItem](a)
}

// maxFilePage is the most files that List returns at once.
const maxFilePage = 10_000

// List implements batch.Files. The cursor is read first, as for batches. A limit
// outside 1-10,000 is an error. DynamoDB counts what it looks at, not what the
// filter lets through: a page may take many of its answers.
func (s *Files) List(ctx context.Context, tenant string, q batch.FileQuery, now time.Time) ([]batch.File, bool, error) {
	if q.Limit < 1 || q.Limit > maxFilePage {
		return nil, false, fileErr("list", tenant, "", fmt.Errorf("limit %d is not within 1-%d", q.Limit, maxFilePage))
	}
	cond := expression.Key(attrTenantPK).Equal(expression.Value(tenantFiles(tenant)))
	if q.After != "" {
		i, err := s.get(ctx, tenant, q.After)
		if err != nil {
			return nil, false, fileErr("list after", tenant, q.After, err)
		}
		// Made anew: a deleted file isn't in the index any more.
		last := expression.Value(tenantSK(fromMillis(i.CreatedAt), i.ID))
		if q.Ascending {
			cond = cond.And(expression.Key(attrTenantSK).GreaterThan(last))
		} else {
			cond = cond.And(expression.Key(attrTenantSK).LessThan(last))
		}
	}
	alive := name("expires_at").AttributeNotExists().Or(name("expires_at").GreaterThan(value(millis(now))))
	if q.Purpose != "" {
		alive = alive.And(is("purpose", q.Purpose))
	}
	found, err := s.list(ctx, cond, alive, q.Ascending, q.Limit+1)
	if err != nil {
		return nil, false, fileErr("list", tenant, "", err)
	}
	if len(found) > q.Limit {
		return found[:q.Limit], true, nil
	}
	return found, false, nil
}

// list returns the first files that cond and filter select, at most limit.
func (s *Files) list(ctx context.Context, cond expression.KeyConditionBuilder, filter expression.ConditionBuilder, ascending bool, limit int) ([]batch.File, error) {
	e, err := expression.NewBuilder().WithKeyCondition(cond).WithFilter(filter).Build()
	if err != nil {
		return nil, err
	}
	pages := dynamodb.NewQueryPaginator(s.t.client, &dynamodb.QueryInput{
		TableName: &s.t.name, IndexName: aws.String(tenantIndex), ScanIndexForward: &ascending,
		Limit:                  aws.Int32(int32(max(limit, leastScan))),
		KeyConditionExpression: e.KeyCondition(), FilterExpression: e.Filter(),
		ExpressionAttributeNames: e.Names(), ExpressionAttributeValues: e.Values(),
	})
	var found []batch.File
	for pages.HasMorePages() && len(found) < limit {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Items {
			i, err := decode[fileItem](a)
			if err != nil {
				return nil, err
			}
			found = append(found, i.file())
		}
	}
	return found[:min(len(found), limit)], nil
}

// leastScan is how many files one answer of DynamoDB's looks at, at least: were
// it the page's own limit, a small page of a rare purpose would take an answer
// for every few files.
const leastScan = 500

// Delete implements batch.Files.
func (s *Files) Delete(ctx context.Context, tenant, id string, now time.Time) error {
	if !storable(id) {
		return fileErr("delete", tenant, id, batch.ErrNotFound)
	}
	out, err := s.t.update(ctx, fileKey(tenant, id), deleteFile(now), false)
	switch {
	case err != nil:
	case out.refused && out.item == nil:
		err = batch.ErrNotFound
	case out.refused:
		if _, err = decode[fileItem](out.item); err == nil {
			err = batch.ErrDeleted
		}
	}
	if err != nil {
		return fileErr("delete", tenant, id, err)
	}
	return nil
}
