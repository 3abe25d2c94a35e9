package dynamo

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// kindOf is what an item is, by its key.
func kindOf(a attributes) string {
	pk, sk := text(a, attrPK), text(a, attrSK)
	switch {
	case strings.HasPrefix(pk, "T#") && sk == "META":
		return "META"
	case strings.HasPrefix(pk, "T#") && strings.HasPrefix(sk, partPrefix):
		return "PART"
	}
	kind, _, _ := strings.Cut(pk, "#")
	return kind
}

// stateOf is the kind and what the item says of its state: which attributes there
// must be depends on it.
func stateOf(a attributes) string {
	state := text(a, "status") + text(a, "state")
	if _, deleted := a["deleted_at"]; deleted {
		state = "deleted"
	}
	return kindOf(a) + " " + state
}

func text(a attributes, name string) string {
	s, _ := a[name].(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

// shape is what a release's items look like: what an older program counts on when
// it reads what a newer one wrote.
type shape struct {
	// must are the attributes that every item of a kind and state had.
	must map[string]map[string]bool
	// types are the types of the attributes of a kind, by path.
	types map[string]map[string]string
}

// v1 is the shape of the items of testdata/v1.
func v1(t *testing.T) *shape {
	t.Helper()
	s := &shape{map[string]map[string]bool{}, map[string]map[string]string{}}
	for name, f := range fixtures(t) {
		if !strings.HasPrefix(name, "v1/") {
			continue
		}
		for _, i := range f.Items {
			s.learn(attributes(i))
		}
	}
	return s
}

func (s *shape) learn(a attributes) {
	kind, state := kindOf(a), stateOf(a)
	if s.types[kind] == nil {
		s.types[kind] = map[string]string{}
	}
	maps.Copy(s.types[kind], typesOf(kind, a))
	if s.must[state] == nil {
		s.must[state] = map[string]bool{}
		for name := range a {
			s.must[state][name] = true
		}
	}
	for name := range s.must[state] {
		if _, there := a[name]; !there {
			delete(s.must[state], name)
		}
	}
	// What a caller said or didn't, and what only some batches have.
	for _, optional := range []string{"metadata", "output_expiry", "error_file_id", "output_file_id", "last_error", "task_token"} {
		delete(s.must[state], optional)
	}
	// Without it an item merely stays: one that is confirmed by an older program too.
	if state == "BR reserved" {
		delete(s.must[state], "ttl")
	}
}

// faults are the ways in which an item isn't of the shape. More attributes are
// none: an older program leaves them alone.
func (s *shape) faults(a attributes) (faults []string) {
	kind, state := kindOf(a), stateOf(a)
	if s.types[kind] == nil {
		return nil // a kind of a later release, which this one never looks at
	}
	if v, _ := a["v"].(*types.AttributeValueMemberN); v == nil || v.Value != "1" {
		faults = append(faults, fmt.Sprintf("v is %v", v))
	}
	for path, was := range s.types[kind] {
		if is := typesOf(kind, a)[path]; is != "" && is != was {
			faults = append(faults, fmt.Sprintf("%s is of type %s, it was %s", path, is, was))
		}
	}
	for name := range s.must[state] {
		if _, there := a[name]; !there {
			faults = append(faults, name+" is missing")
		}
	}
	slices.Sort(faults)
	return faults
}

// typesOf are the types of an item's attributes; * stands for names and places
// that aren't fixed.
func typesOf(kind string, a attributes) map[string]string {
	found := map[string]string{}
	var walk func(path string, v types.AttributeValue)
	walk = func(path string, v types.AttributeValue) {
		found[path] = strings.TrimPrefix(fmt.Sprintf("%T", v), "*types.AttributeValueMember")
		switch v := v.(type) {
		case *types.AttributeValueMemberM:
			for name, inner := range v.Value {
				if path == "metadata" || kind == "U" && path == "parts" {
					name = "*"
				}
				walk(path+"."+name, inner)
			}
		case *types.AttributeValueMemberL:
			for _, inner := range v.Value {
				walk(path+".*", inner)
			}
		}
	}
	for name, v := range a {
		walk(name, v)
	}
	return found
}

// watch holds every item to the shape, as it is after each write.
func (s *shape) watch(t *testing.T, client *dynamodb.Client) Client { return &watcher{client, t, s} }

type watcher struct {
	*dynamodb.Client
	t     *testing.T
	shape *shape
}

// PutItem writes and looks.
func (w *watcher) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	out, err := w.Client.PutItem(ctx, in, o...)
	if err == nil {
		w.judge(in.Item)
	}
	return out, err
}

// UpdateItem writes and looks.
func (w *watcher) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	out, err := w.Client.UpdateItem(ctx, in, o...)
	if err == nil {
		now, err := w.Client.GetItem(context.WithoutCancel(ctx), &dynamodb.GetItemInput{TableName: in.TableName, Key: in.Key, ConsistentRead: aws.Bool(true)})
		if err != nil {
			w.t.Errorf("look at what was written: %v", err)
		} else {
			w.judge(now.Item)
		}
	}
	return out, err
}

func (w *watcher) judge(a attributes) {
	for _, fault := range w.shape.faults(a) {
		w.t.Errorf("%s: an older program would not find what it needs: %s", stateOf(a), fault)
	}
}

// TestShapeFindsFaults: the watcher is worth something.
func TestShapeFindsFaults(t *testing.T) {
	s := v1(t)
	seen := map[string]bool{}
	for _, f := range fixtures(t) {
		for _, i := range f.Items {
			a := attributes(i)
			if got := s.faults(a); len(got) > 0 {
				t.Errorf("%s itself: %v", stateOf(a), got)
			}
			for name := range s.must[stateOf(a)] {
				if name == attrPK || name == attrSK {
					continue
				}
				without := maps.Clone(a)
				delete(without, name)
				if strings.HasPrefix(stateOf(without), kindOf(a)) && stateOf(without) == stateOf(a) && len(s.faults(without)) == 0 {
					t.Errorf("%s: nobody misses %s", stateOf(a), name)
				}
				without[name] = &types.AttributeValueMemberBOOL{Value: true}
				if stateOf(without) == stateOf(a) && len(s.faults(without)) == 0 {
					t.Errorf("%s: %s may be of any type", stateOf(a), name)
				}
			}
			seen[stateOf(a)] = true
		}
	}
	for _, state := range []string{
		"META validating", "META in_progress", "META finalizing", "META completed", "PART pending", "PART leased", "PART done",
		"F ", "F deleted", "U pending", "BR reserved", "BR confirmed", "RS ", "KEY ",
	} {
		if !seen[state] {
			t.Errorf("no item of an older program is %q", state)
		}
	}
}

// TestItemsMeanWhatTheyMeant reads every old item and writes it again: each
// attribute comes out with the name, type and value (so, the unit) that it had.
func TestItemsMeanWhatTheyMeant(t *testing.T) {
	for name, f := range fixtures(t) {
		for _, i := range f.Items {
			was := attributes(i)
			now := rewritten(t, was)
			for attr, v := range was {
				switch {
				case reflect.DeepEqual(now[attr], v):
				case attr == "ended_at" && now[attr] == nil:
					// Only C16 and a refusal write it.
				case now[attr] == nil && reflect.DeepEqual(v, &types.AttributeValueMemberS{}):
					// Empty is as good as absent.
				default:
					t.Errorf("%s, %s %s: was %v, is %v", name, stateOf(was), attr, plain(v), plain(now[attr]))
				}
			}
			for attr := range now {
				_, there := was[attr]
				over := (attr == attrDuePK || attr == attrDueAt) && was[attr] == nil && strings.HasPrefix(stateOf(was), "META ")
				listed := (attr == attrTenantPK || attr == attrTenantSK) && kindOf(was) == "KEY" // no list of keys: see touchKey
				if !there && !over && !listed {
					t.Errorf("%s, %s: %s is new, and not absent by default", name, stateOf(was), attr)
				}
			}
		}
	}
}

// rewritten is an item after this program has read it whole and written it anew.
func rewritten(t *testing.T, a attributes) attributes {
	t.Helper()
	switch kindOf(a) {
	case "META":
		return must(encode(newBatchItem(must(decode[batchItem](a))(t).batch())))(t)
	case "PART":
		return must(encode(newPartItem(must(decode[partItem](a))(t).part())))(t)
	case "F":
		i := must(decode[fileItem](a))(t)
		if i.DeletedAt != 0 {
			return a // never written whole
		}
		return must(encode(newFileItem(i.file())))(t)
	case "U":
		return must(encode(newUploadItem(must(decode[uploadItem](a))(t).upload())))(t)
	case "BR":
		return must(encode(newRowItem(must(decode[rowItem](a))(t).row())))(t)
	case "RS":
		return must(encode(newSendItem(must(decode[sendItem](a))(t).send())))(t)
	case "KEY":
		return must(encode(newKeyItem(must(decode[keyItem](a))(t).key())))(t)
	}
	t.Fatalf("an item of no kind: %v", stateOf(a))
	return nil
}

// plain is a value for a reader.
func plain(v types.AttributeValue) any {
	if v == nil {
		return "absent"
	}
	return reflect.ValueOf(v).Elem().FieldByName("Value").Interface()
}
