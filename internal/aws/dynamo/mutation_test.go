package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// TestEveryConditionIsHeld drops each conjunct of each condition that the suites
// make the store send, one at a time, on the way to DynamoDB, and wants a case to
// fail. Nobody lists the conditions: a first run of every case records them. Nor
// is there a hook in the store: the client is wrapped.
//
// Dropping a conjunct only matters to a case in which the whole condition was
// refused at least once; only those are run again.
func TestEveryConditionIsHeld(t *testing.T) {
	client, name := newTable(t)
	began := time.Now()

	type found struct {
		site
		cases []runnable // in which the condition was refused
		sent  []runnable // in which it was sent
	}
	var (
		mu    sync.Mutex
		sites = map[site]*found{}
		all   = every()
	)
	parallel(all, func(c runnable) {
		rec := &editor{Client: client}
		if failed, said := c.fails(t.Context(), client, name, New(rec, name)); failed {
			t.Errorf("%s fails with every condition in place:\n%s", c.name, said)
		}
		mu.Lock()
		defer mu.Unlock()
		for s, refused := range rec.seen {
			if sites[s] == nil {
				sites[s] = &found{site: s}
			}
			sites[s].sent = append(sites[s].sent, c)
			if refused {
				sites[s].cases = append(sites[s].cases, c)
			}
		}
	})
	if t.Failed() {
		return
	}
	recorded := time.Since(began)

	runs := 0
	parallel(slices.SortedFunc(maps.Values(sites), func(a, b *found) int { return strings.Compare(a.String(), b.String()) }), func(f *found) {
		// Where few cases are refused, they are about nothing else.
		slices.SortFunc(f.cases, func(a, b runnable) int { return strings.Compare(a.name, b.name) })
		if len(f.cases) == 0 { // who races for it may have come one after the other: once more, and again
			f.cases = slices.Repeat(f.sent, raceAgain)
		}
		for _, c := range f.cases {
			e := &editor{Client: client, drop: &f.site}
			failed, _ := c.fails(t.Context(), client, name, New(e, name))
			if err := e.misedited(); err != nil {
				t.Errorf("DynamoDB doesn't take the edited condition of %s: %v", f, err)
			}
			mu.Lock()
			runs++
			mu.Unlock()
			if failed {
				t.Logf("%-110s caught by %s", f, c.name)
				return
			}
		}
		t.Errorf("nobody notices when this is dropped: %s (in %d cases the condition was refused)", f, len(f.cases))
	})
	t.Logf("%d conjuncts, %d cases recorded in %v, then %d runs in %v", len(sites), len(all), recorded.Round(time.Millisecond), runs, (time.Since(began) - recorded).Round(time.Millisecond))
	if len(sites) < 20 {
		t.Errorf("only %d conjuncts seen: the recording must be broken", len(sites))
	}
}

// raceAgain is how often a case is run that may be a race in which nobody lost.
const raceAgain = 20

// parallel runs do for each of list, a few at a time.
func parallel[V any](list []V, do func(V)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, v := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(v)
		})
	}
	wg.Wait()
}

// site is one conjunct of one condition: of the method that sends it, with names
// filled in.
type site struct {
	method, condition string
	n                 int // which conjunct, in reading order
	conjunct          string
}

func (s site) String() string { return fmt.Sprintf("%s: %s, of %s", s.method, s.conjunct, s.condition) }

// editor is a Client that takes note of every conjunct that it sees, or drops
// one.
type editor struct {
	Client
	drop *site

	mu    sync.Mutex
	seen  map[site]bool // whether the condition was ever refused
	wrong error
}

// misedited is what DynamoDB says to a condition that it can't read: a case that
// fails for that catches nothing.
func (e *editor) misedited() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrong
}

func (e *editor) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	changed := *in
	sites := e.edit(&changed.ConditionExpression, in.ExpressionAttributeNames)
	out, err := e.Client.PutItem(ctx, &changed, o...)
	e.note(sites, err)
	return out, err
}

func (e *editor) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	changed := *in
	sites := e.edit(&changed.ConditionExpression, in.ExpressionAttributeNames)
	out, err := e.Client.UpdateItem(ctx, &changed, o...)
	e.note(sites, err)
	return out, err
}

func (e *editor) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	changed := *in
	sites := e.edit(&changed.ConditionExpression, in.ExpressionAttributeNames)
	out, err := e.Client.DeleteItem(ctx, &changed, o...)
	e.note(sites, err)
	return out, err
}

func (e *editor) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	changed := *in
	changed.TransactItems = slices.Clone(in.TransactItems)
	var sites []site
	for i, item := range changed.TransactItems {
		switch {
		case item.Update != nil:
			u := *item.Update
			changed.TransactItems[i].Update = &u
			sites = append(sites, e.edit(&u.ConditionExpression, u.ExpressionAttributeNames)...)
		case item.ConditionCheck != nil:
			c := *item.ConditionCheck
			changed.TransactItems[i].ConditionCheck = &c
			sites = append(sites, e.edit(&c.ConditionExpression, c.ExpressionAttributeNames)...)
		case item.Put != nil:
			p := *item.Put
			changed.TransactItems[i].Put = &p
			sites = append(sites, e.edit(&p.ConditionExpression, p.ExpressionAttributeNames)...)
		default:
			panic("a transaction with something else in it")
		}
	}
	out, err := e.Client.TransactWriteItems(ctx, &changed, o...)
	e.note(sites, err)
	return out, err
}

func (e *editor) note(sites []site, err error) {
	_, refused := refusal(err)
	if _, cancelled := errors.AsType[*types.TransactionCanceledException](err); cancelled {
		refused = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && strings.Contains(err.Error(), "ValidationException") && strings.Contains(err.Error(), "ConditionExpression") {
		e.wrong = err
	}
	if e.seen == nil {
		e.seen = map[site]bool{}
	}
	for _, s := range sites {
		e.seen[s] = e.seen[s] || refused
	}
}

var (
	placeholder = regexp.MustCompile(`[#:][0-9]+`)
	partName    = regexp.MustCompile(`parts\.\w+`)
)

// edit replaces the conjunct to be dropped by one that always holds and still
// uses every placeholder: DynamoDB refuses an expression with one left over.
func (e *editor) edit(condition **string, names map[string]string) (sites []site) {
	if *condition == nil {
		panic("a write without a condition")
	}
	text := **condition
	readable := func(s string) string {
		s = placeholder.ReplaceAllStringFunc(s, func(p string) string {
			if p[0] == '#' {
				return names[p]
			}
			return "?"
		})
		return partName.ReplaceAllString(s, "parts.?") // a value too, though DynamoDB wants it as a name
	}
	method := caller()
	for n, c := range conjuncts(text, 0) {
		s := site{method, readable(text), n, readable(text[c.from:c.to])}
		if s.conjunct == versionConjunct {
			continue // every update's, added in one place: TestNoWriteTouchesANewerItem
		}
		sites = append(sites, s)
		if e.drop != nil && *e.drop == s {
			edited := text[:c.from] + "(" + text[c.from:c.to] + ") OR attribute_exists(pk) OR attribute_not_exists(pk)" + text[c.to:]
			*condition = &edited
		}
	}
	return sites
}

var method = regexp.MustCompile(`dynamo\.\(\*([A-Z]\w+)\)\.([A-Z]\w+)`)

// caller is the port's method that the present call was made by.
func caller() (name string) {
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		if m := method.FindStringSubmatch(f.Function); m != nil {
			name = m[1] + "." + m[2]
		}
		if !more {
			return name
		}
	}
}

type span struct{ from, to int }

// conjuncts are what AND joins in an expression as the builder writes it, at any
// depth, without the parentheses around them. An OR below an AND is one, and so
// is what AND joins in its branches. An expression without AND is its own.
func conjuncts(text string, offset int) (found []span) {
	trimmed := text
	for strings.HasPrefix(trimmed, "(") && closing(trimmed) == len(trimmed)-1 {
		trimmed = trimmed[1 : len(trimmed)-1]
		offset++
	}
	for _, op := range []string{" AND ", " OR "} {
		pieces := split(trimmed, op)
		if len(pieces) == 1 {
			continue
		}
		for _, p := range pieces {
			inner := conjuncts(trimmed[p.from:p.to], offset+p.from)
			if op == " OR " && len(inner) == 1 {
				continue // without it the whole OR would hold: that is the OR's own
			}
			found = append(found, inner...)
		}
		if op == " OR " {
			found = append(found, span{offset, offset + len(trimmed)})
		}
		return found
	}
	return []span{{offset, offset + len(trimmed)}}
}

// split cuts text at op where it stands outside parentheses.
func split(text, op string) (pieces []span) {
	depth, from := 0, 0
	for i := range len(text) {
		switch {
		case text[i] == '(':
			depth++
		case text[i] == ')':
			depth--
		case depth == 0 && strings.HasPrefix(text[i:], op):
			pieces = append(pieces, span{from, i})
			from = i + len(op)
		}
	}
	return append(pieces, span{from, len(text)})
}

// closing is where the parenthesis that text begins with is closed.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func TestConjuncts(t *testing.T) {
	for in, want := range map[string][]string{
		"attribute_not_exists (#0)":                            {"attribute_not_exists (#0)"},
		"(#0 = :0) AND (#1 = :1)":                              {"#0 = :0", "#1 = :1"},
		"((#0 = :0) AND (#1 = :1)) AND (#2 = :2)":              {"#0 = :0", "#1 = :1", "#2 = :2"},
		"(#0 = :0) AND ((#1 < :1) OR (attribute_exists (#2)))": {"#0 = :0", "(#1 < :1) OR (attribute_exists (#2))"},
		"((a) AND (b)) OR ((c) AND (d IN (:0, :1)))":           {"a", "b", "c", "d IN (:0, :1)", "((a) AND (b)) OR ((c) AND (d IN (:0, :1)))"},
		"(a IN (:0, :1)) AND (attribute_not_exists (#0))":      {"a IN (:0, :1)", "attribute_not_exists (#0)"},
	} {
		var got []string
		for _, c := range conjuncts(in, 0) {
			got = append(got, in[c.from:c.to])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
