package dynamo

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// fixture is what an earlier release left behind: testdata/README.md says how.
type fixture struct {
	About    string       `json:"about"`
	Batch    string       `json:"batch"`
	Items    []storedItem `json:"items"`
	Objects  []storedFile `json:"objects"`
	Messages []string     `json:"messages"`
	Input    string       `json:"execution_input"`
}

type storedFile struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	ETag   string `json:"etag"`
	Text   string `json:"text"`
}

// fixtures are those of every earlier release, by folder and file.
func fixtures(t *testing.T) map[string]fixture {
	t.Helper()
	paths, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := map[string]fixture{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var f fixture
		if err := json.Unmarshal(b, &f); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		all[filepath.Base(filepath.Dir(p))+"/"+filepath.Base(p)] = f
	}
	return all
}

// load puts the items into the table and the objects into a store, where what the
// items pin must have the tags that it had.
func (f fixture) load(t *testing.T, r raw) *memory.Memory {
	t.Helper()
	for _, i := range f.Items {
		ok(t, r.putBack(t.Context(), attributes(i)))
	}
	m := memory.New(memory.Options{})
	for _, o := range f.Objects {
		stored, err := m.Objects.Put(t.Context(), batch.Object{Bucket: o.Bucket, Key: o.Key}, []byte(o.Text))
		ok(t, err)
		if stored.ETag != o.ETag {
			t.Fatalf("%s: tag %s, it was %s", o.Key, stored.ETag, o.ETag)
		}
	}
	return m
}

// object is the text of an object of the fixture.
func (f fixture) object(t *testing.T, key string) []byte {
	t.Helper()
	for _, o := range f.Objects {
		if o.Key == key {
			return []byte(o.Text)
		}
	}
	t.Fatalf("no object %s", key)
	return nil
}

// parts are the fixture's, as this program reads them.
func (f fixture) parts(t *testing.T) (parts []batch.Part) {
	t.Helper()
	for _, i := range f.Items {
		if kindOf(attributes(i)) == "PART" {
			parts = append(parts, must(decode[partItem](attributes(i)))(t).part())
		}
	}
	return parts
}

// meta is the fixture's batch, as this program reads it.
func (f fixture) meta(t *testing.T) batch.Batch {
	t.Helper()
	for _, i := range f.Items {
		if kindOf(attributes(i)) == "META" {
			return must(decode[batchItem](attributes(i)))(t).batch()
		}
	}
	t.Fatal("no META")
	return batch.Batch{}
}

// storedItem is an item in DynamoDB's own JSON, which the SDK doesn't read.
type storedItem attributes

// UnmarshalJSON reads {"name": {"S": "…"}, …}.
func (i *storedItem) UnmarshalJSON(b []byte) error {
	var m map[string]storedValue
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*i = storedItem{}
	for name, v := range m {
		(*i)[name] = v.AttributeValue
	}
	return nil
}

type storedValue struct{ types.AttributeValue }

// UnmarshalJSON reads {"S": "…"} and its like; of the types, those that items use.
func (v *storedValue) UnmarshalJSON(b []byte) error {
	var typed map[string]json.RawMessage
	if err := json.Unmarshal(b, &typed); err != nil {
		return err
	}
	if len(typed) != 1 {
		return fmt.Errorf("%d types in %s", len(typed), b)
	}
	kind := slices.Collect(maps.Keys(typed))[0]
	text := func() (s string, err error) {
		err = json.Unmarshal(typed[kind], &s)
		return s, err
	}
	switch kind {
	case "S":
		s, err := text()
		v.AttributeValue = &types.AttributeValueMemberS{Value: s}
		return err
	case "N":
		s, err := text()
		v.AttributeValue = &types.AttributeValueMemberN{Value: s}
		return err
	case "B":
		s, err := text()
		if err != nil {
			return err
		}
		bytes, err := base64.StdEncoding.DecodeString(s)
		v.AttributeValue = &types.AttributeValueMemberB{Value: bytes}
		return err
	case "M":
		var i storedItem
		err := json.Unmarshal(typed[kind], &i)
		v.AttributeValue = &types.AttributeValueMemberM{Value: attributes(i)}
		return err
	case "L":
		var list []storedValue
		err := json.Unmarshal(typed[kind], &list)
		values := make([]types.AttributeValue, len(list))
		for n := range list {
			values[n] = list[n].AttributeValue
		}
		v.AttributeValue = &types.AttributeValueMemberL{Value: values}
		return err
	}
	return fmt.Errorf("type %q", kind)
}

// putBack stores an item as it is.
func (r raw) putBack(ctx context.Context, a attributes) error {
	_, err := r.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &r.name, Item: a})
	return err
}
