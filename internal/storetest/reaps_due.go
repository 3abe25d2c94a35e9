package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
)

var dueCases = []Case[ReapsPorts]{
	{"due/a part in each state", dueParts},
	{"due/a batch in each status", dueBatches},
	{"due/files, uploads and bridge rows", dueOthers},
	{"due/before an instant, the most overdue first, page by page", duePages},
	{"due/from an instant on", dueFrom},
	{"due/out of bounds", dueBounds},
	{"parts/those that are there, as they are", partsThere},
	{"parts/as many as there may be", partsMany},
	{"defer/moves the time and nothing else", deferMoves},
	{"defer/not a batch that is over", deferOver},
}

// dueView reads one tenant's rows of the due index.
type dueView struct {
	p      ReapsPorts
	tenant string
	// shards are those that are read: all of them, until it is known which the
	// tenant's only item is in. It never moves.
	shards []int
}

func (p ReapsPorts) due(tenant string) *dueView {
	v := &dueView{p: p, tenant: tenant}
	for s := range batch.DueShards {
		v.shards = append(v.shards, s)
	}
	return v
}

// rows are those that q selects, read page by page.
func (v *dueView) rows(t T, q batch.DueQuery) (rows []batch.Due) {
	t.Helper()
	for _, q.Shard = range v.shards {
		for q.After = ""; ; {
			page := value(v.p.Reaps.Due(t.Context(), q))(t, "due")
			for _, d := range page.Rows {
				if d.Tenant == v.tenant {
					rows = append(rows, d)
				}
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
	}
	slices.SortFunc(rows, func(a, b batch.Due) int { return cmp.Or(a.At.Compare(b.At), a.Part-b.Part) })
	return rows
}

// are demands that the rows, living and dead, come to be want.
func (v *dueView) are(t T, what string, living, dead []batch.Due) {
	t.Helper()
	var said string
	eventually(t, "due rows "+what, func() bool {
		gotLiving := v.rows(t, batch.DueQuery{Limit: batch.MaxDue})
		gotDead := v.rows(t, batch.DueQuery{Limit: batch.MaxDue, Dead: true})
		if now := fmt.Sprintf("%s: living %v, dead %v", what, gotLiving, gotDead); now != said {
			t.Logf("%s", now)
			said = now
		}
		return slices.Equal(gotLiving, living) && slices.Equal(gotDead, dead)
	})
}

// settle finds the shard of the tenant's only item.
func (v *dueView) settle(t T) {
	t.Helper()
	all := v.shards
	eventually(t, "a due row of "+v.tenant, func() bool {
		for _, s := range all {
			if v.shards = []int{s}; len(v.rows(t, batch.DueQuery{Limit: batch.MaxDue})) > 0 {
				return true
			}
		}
		return false
	})
}

// duePart is the row of p.
func duePart(p batch.Part) []batch.Due {
	return []batch.Due{{Kind: batch.DuePart, Tenant: p.Tenant, ID: p.Batch, Part: p.N, At: stored(p.Due)}}
}

func dueParts(t T, p ReapsPorts) {
	k := key(19_999)
	part := fullPart(k)
	part.Lines = 1
	insert(t, p.Parts, part)
	now := func() batch.Part { return lookPart(t, p.Parts, k) }
	if duePart(part)[0].PartKey() != k {
		t.Errorf("a row names %+v, want %+v", duePart(part)[0].PartKey(), k)
	}
	v := p.due(k.Tenant)
	v.are(t, "of a planned part", duePart(part), nil)
	v.settle(t)
	c := batch.Claim{PartKey: k, Token: token()}
	part = value(p.Claims.Claim(t.Context(), c, task, 9, at(time.Minute), at(0)))(t, "claim")
	v.are(t, "of a claimed part", duePart(part), nil)
	succeeds(t, "heartbeat", p.Claims.Heartbeat(t.Context(), c, 0, at(2*time.Minute), at(0)))
	succeeds(t, "suspect", p.Claims.Suspect(t.Context(), c, batch.Suspect{Strikes: 1, By: c.Token}, 0, at(3*time.Minute), at(0)))
	v.are(t, "after a heartbeat and a suspect", duePart(part), nil)
	part = value(p.Reaps.Reap(t.Context(), now(), cut, overdue, cut))(t, "reap")
	v.are(t, "of a reaped part", duePart(part), nil)
	part = value(p.Reaps.Postpone(t.Context(), part, overdue.Add(time.Hour), cut))(t, "postpone")
	v.are(t, "of a postponed part", duePart(part), nil)
	part = value(p.Claims.Claim(t.Context(), c, task, 9, at(time.Minute), at(0)))(t, "claim again")
	part = value(p.Steals.Steal(t.Context(), batch.Claim{PartKey: k, Token: "thief"}, task, part.Ver, 9, cut, until, cut))(t, "steal")
	v.are(t, "of a stolen part", duePart(part), nil)
	c.Token = "thief"
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, batch.Checkpoint{To: 1, Done: bits(1, 0), Chunk: chunk(1)}, at(4*time.Minute), at(0)))
	v.are(t, "of a checkpointed part", duePart(now()), nil)
	succeeds(t, "fail", p.Claims.Fail(t.Context(), c, "reason", at(time.Hour), at(0)))
	part = value(p.Deaths.Declare(t.Context(), now(), 0, cut, at(9*time.Hour), cut))(t, "declare dead")
	v.are(t, "of a dead part", nil, duePart(part))
	b := fullBatch()
	b.Tenant, b.ID, b.Due, b.Deadline = k.Tenant, k.Batch, time.Time{}, time.Time{}
	begin(t, p.Batches, b)
	value(p.Batches.Start(t.Context(), b.Tenant, b.ID, batch.Started{Parts: 1}, at(0)))(t, "start")
	part = value(p.Deaths.Redrive(t.Context(), part, at(10*time.Hour), cut))(t, "redrive")
	v.are(t, "of a redriven part", duePart(part), nil)
	part = value(p.Deaths.Declare(t.Context(), part, 0, cut, at(9*time.Hour), cut))(t, "declare dead again")
	value(p.Seals.Seal(t.Context(), k, part.Ver, cut))(t, "seal")
	v.are(t, "of a sealed part", nil, nil)
}

func dueBatches(t T, p ReapsPorts) {
	b := fullBatch()
	b.Due = time.Time{}
	row := []batch.Due{{Kind: batch.DueBatch, Tenant: b.Tenant, ID: b.ID, At: stored(b.Deadline)}}
	same(t, "created", begin(t, p.Batches, b), func() batch.Batch { b.Due = b.Deadline; return b }(), "Ver")
	v := p.due(b.Tenant)
	v.are(t, "of a created batch", row, nil)
	v.settle(t)
	value(p.Batches.Start(t.Context(), b.Tenant, b.ID, batch.Started{Parts: 1}, at(0)))(t, "start")
	value(p.Endings.End(t.Context(), b.Tenant, b.ID, batch.Completed, at(0)))(t, "end")
	tok := token()
	value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, tok, until, cut, at(0)))(t, "finalize")
	v.are(t, "of a batch being finished", row, nil)
	value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, batch.Closed{}, at(0)))(t, "close")
	v.are(t, "of a closed batch", nil, nil)

	other := fullBatch()
	other.Due = at(5 * time.Minute)
	begin(t, p.Batches, other)
	v = p.due(other.Tenant)
	v.are(t, "of a batch that names its own time", []batch.Due{{Kind: batch.DueBatch, Tenant: other.Tenant, ID: other.ID, At: stored(other.Due)}}, nil)
	value(p.Batches.Refuse(t.Context(), other.Tenant, other.ID, nil, at(0)))(t, "refuse")
	v.are(t, "of a refused batch", nil, nil)
}

func dueOthers(t T, p ReapsPorts) {
	who := tenant()
	f := batch.File{Tenant: who, ID: "file-" + unique(), CreatedAt: at(0), ExpiresAt: at(time.Hour)}
	succeeds(t, "put", p.Files.Put(t.Context(), f))
	r := bridge.Row{Key: bridge.Key{Tenant: who, CorrelationID: awkward}, State: bridge.Reserved, Token: token(), Ver: 1, ClaimedAt: at(0), Due: at(2 * time.Hour)}
	succeeds(t, "claim", p.Bridge.Claim(t.Context(), r))
	u := fullUpload()
	u.Tenant, u.ExpiresAt = who, at(3*time.Hour)
	succeeds(t, "create upload", p.Uploads.Create(t.Context(), u))
	rows := []batch.Due{
		{Kind: batch.DueFile, Tenant: who, ID: f.ID, At: stored(f.ExpiresAt)},
		{Kind: batch.DueBridge, Tenant: who, ID: r.Name(), At: stored(r.Due)},
		{Kind: batch.DueUpload, Tenant: who, ID: u.ID, At: stored(u.ExpiresAt)},
	}
	v := p.due(who)
	v.are(t, "of a file, a reservation and an upload", rows, nil)
	value(p.Uploads.Cancel(t.Context(), who, u.ID))(t, "cancel")
	succeeds(t, "confirm", p.Bridge.Confirm(t.Context(), r.Key, r.Token, "job", expires()))
	v.are(t, "once one is confirmed, and one cancelled", rows[:1], nil)
}

// duePages: rows of one shard come in order; the whole of them is what was
// stored, whatever the page.
func duePages(t T, p ReapsPorts) {
	k := key(0)
	var want []batch.Due
	var parts []batch.Part
	for n := range 60 {
		part := barePart(batch.PartKey{Tenant: k.Tenant, Batch: k.Batch, N: n})
		part.Due = at(time.Duration(n/2) * time.Second) // two of each
		parts = append(parts, part)
		want = append(want, duePart(part)...)
	}
	insert(t, p.Parts, parts...)
	for _, limit := range []int{1, 7, batch.MaxDue} {
		// Other cases' rows are in the same shards: bounds keep most of them out.
		q := batch.DueQuery{Limit: limit, Before: at(25 * time.Second)}
		var got []batch.Due
		eventually(t, fmt.Sprintf("50 rows by %d", limit), func() bool {
			got = p.due(k.Tenant).rows(t, q)
			return len(got) >= 50
		})
		if !slices.Equal(got, want[:50]) {
			t.Errorf("limit %d: %v\nwant %v", limit, got, want[:50])
		}
	}
	for s := range batch.DueShards {
		page := value(p.Reaps.Due(t.Context(), batch.DueQuery{Shard: s, Limit: batch.MaxDue}))(t, "due")
		if !slices.IsSortedFunc(page.Rows, func(a, b batch.Due) int { return a.At.Compare(b.At) }) {
			t.Errorf("shard %d is out of order: %v", s, page.Rows)
		}
	}
}

func dueFrom(t T, p ReapsPorts) {
	k := key(0)
	var want []batch.Due
	var parts []batch.Part
	for n := range 6 {
		part := barePart(batch.PartKey{Tenant: k.Tenant, Batch: k.Batch, N: n})
		part.Due = at(time.Duration(n) * time.Millisecond)
		parts = append(parts, part)
		want = append(want, duePart(part)...)
	}
	insert(t, p.Parts, parts...)
	for _, c := range []struct{ from, before, first, behind int }{{2, 0, 2, 6}, {2, 4, 2, 4}, {2, 3, 2, 3}, {2, 2, 2, 2}, {4, 2, 4, 4}, {6, 0, 6, 6}} {
		q := batch.DueQuery{Limit: 3, From: at(time.Duration(c.from) * time.Millisecond)}
		if c.before > 0 {
			q.Before = at(time.Duration(c.before) * time.Millisecond)
		}
		var got []batch.Due
		eventually(t, fmt.Sprintf("rows from %d to %d", c.from, c.before), func() bool {
			got = p.due(k.Tenant).rows(t, q)
			return len(got) >= c.behind-c.first
		})
		if !slices.Equal(got, want[c.first:c.behind]) {
			t.Errorf("from %d to %d: %v\nwant %v", c.from, c.before, got, want[c.first:c.behind])
		}
	}
}

// byNumber reads parts and puts them in order.
func byNumber(t T, p ReapsPorts, keys ...batch.PartKey) []batch.Part {
	t.Helper()
	parts := value(p.Reaps.Parts(t.Context(), keys))(t, "parts")
	slices.SortFunc(parts, func(a, b batch.Part) int { return a.N - b.N })
	return parts
}

func partsThere(t T, p ReapsPorts) {
	k := key(7)
	at := func(n int) batch.PartKey { return batch.PartKey{Tenant: k.Tenant, Batch: k.Batch, N: n} }
	full := midPart(at(7), token())
	p.Seed(t, full)
	planned := fullPart(at(9))
	insert(t, p.Parts, planned)
	if got := byNumber(t, p); len(got) != 0 {
		t.Errorf("none asked for: %v", got)
	}
	got := byNumber(t, p, at(9), at(8), at(7), batch.PartKey{Tenant: tenant(), Batch: k.Batch, N: 7})
	if len(got) != 2 {
		t.Fatalf("%d parts: %v", len(got), got)
	}
	same(t, "one at work", got[0], full)
	same(t, "a planned one", got[1], planned, "Ver")
}

func partsMany(t T, p ReapsPorts) {
	k := key(0)
	var parts []batch.Part
	var keys []batch.PartKey
	for n := range batch.MaxParts {
		part := barePart(batch.PartKey{Tenant: k.Tenant, Batch: k.Batch, N: n})
		parts, keys = append(parts, part), append(keys, part.PartKey)
	}
	insert(t, p.Parts, parts...)
	got := byNumber(t, p, keys...)
	for n, part := range got {
		if part.PartKey != keys[n] {
			t.Errorf("part %d is %v", n, part.PartKey)
		}
	}
	if len(got) != len(keys) {
		t.Errorf("%d parts", len(got))
	}
	if _, err := p.Reaps.Parts(t.Context(), append(keys, key(0))); err == nil {
		t.Errorf("more than there may be")
	}
}

func dueBounds(t T, p ReapsPorts) {
	for _, q := range []batch.DueQuery{
		{Shard: -1, Limit: 1}, {Shard: batch.DueShards, Limit: 1}, {}, {Limit: -1}, {Limit: batch.MaxDue + 1},
	} {
		if _, err := p.Reaps.Due(t.Context(), q); err == nil {
			t.Errorf("due with %+v succeeds", q)
		}
	}
}

func deferMoves(t T, p ReapsPorts) {
	b := begin(t, p.Batches, fullBatch())
	v := p.due(b.Tenant)
	v.settle(t)
	steps := []func() (batch.Batch, error){
		func() (batch.Batch, error) { return b, nil },
		func() (batch.Batch, error) { return p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)) },
		func() (batch.Batch, error) { return p.Endings.End(t.Context(), b.Tenant, b.ID, batch.Cancelled, at(0)) },
		func() (batch.Batch, error) {
			return p.Endings.Finalize(t.Context(), b.Tenant, b.ID, token(), until, cut, at(0))
		},
	}
	for i, step := range steps {
		want := value(step())(t, "step")
		want.Due = at(time.Duration(i+1) * time.Minute)
		for range 2 {
			succeeds(t, "defer", p.Reaps.Defer(t.Context(), b.Tenant, b.ID, want.Due, cut))
			same(t, fmt.Sprintf("deferred while %s", want.Status), look(t, p.Batches, b), want)
		}
		v.are(t, "of a deferred batch", []batch.Due{{Kind: batch.DueBatch, Tenant: b.Tenant, ID: b.ID, At: stored(want.Due)}}, nil)
	}
}

func deferOver(t T, p ReapsPorts) {
	for name, b := range over(t, p) {
		refuses(t, "defer a batch that is "+name, p.Reaps.Defer(t.Context(), b.Tenant, b.ID, overdue, cut), batch.ErrStatus)
		same(t, name, look(t, p.Batches, b), b)
		p.due(b.Tenant).are(t, "of a batch that is "+name, nil, nil)
	}
}

// over is a batch in each terminal status.
func over(t T, p ReapsPorts) map[string]batch.Batch {
	t.Helper()
	b := begin(t, p.Batches, fullBatch())
	all := map[string]batch.Batch{"failed": value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(1), at(0)))(t, "refuse")}
	for _, ending := range []batch.Status{batch.Completed, batch.Cancelled, batch.Expired} {
		b, tok := begin(t, p.Batches, fullBatch()), token()
		value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
		value(p.Endings.End(t.Context(), b.Tenant, b.ID, ending, at(0)))(t, "end")
		value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, tok, until, cut, at(0)))(t, "finalize")
		all[string(ending)] = value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, batch.Closed{}, at(0)))(t, "close")
	}
	return all
}
