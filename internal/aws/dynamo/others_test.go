package dynamo

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
	"holdfast/internal/upload"
)

// TestOtherItemsOfAnOlderProgram: keys, files, an upload, the bridge's rows and
// sends are read as what they were, and written on.
func TestOtherItemsOfAnOlderProgram(t *testing.T) {
	t.Parallel()
	f := fixtures(t)["v1/others.json"]
	client, name := newTable(t)
	r, s, ctx := raw{client, name}, New(v1(t).watch(t, client), name), t.Context()
	m := f.load(t, r)
	byKind := map[string][]attributes{}
	for _, i := range f.Items {
		byKind[stateOf(attributes(i))] = append(byKind[stateOf(attributes(i))], attributes(i))
	}
	one := func(state string) attributes {
		if len(byKind[state]) == 0 {
			t.Fatalf("no %q", state)
		}
		return byKind[state][0]
	}

	hash := text(one("KEY "), "hash")
	if k := must(s.Keys.Get(ctx, hash))(t); k.Tenant != "acme" || k.Hash != hash || len(k.Scopes) != 2 || k.CreatedAt.IsZero() {
		t.Errorf("key %+v", k)
	} else {
		// No list knows it, until it is used.
		if err := errOf(s.Keys.Find(ctx, "acme", k.ID())); !errors.Is(err, access.ErrNotFound) {
			t.Errorf("find: %v", err)
		}
		ok(t, s.Keys.Touch(ctx, k, k.CreatedAt))
		if page, _, err := s.Keys.List(ctx, "acme", "", 10); err != nil || len(page) != 1 || page[0].Hash != hash {
			t.Errorf("list of what was touched: %+v, %v", page, err)
		}
		if k := must(s.Keys.Disable(ctx, "acme", hash, k.CreatedAt))(t); k.DisabledAt.IsZero() || len(k.Scopes) != 2 {
			t.Errorf("disabled %+v", k)
		}
	}

	page, _, err := s.Batches.List(ctx, "acme", "", 10)
	ok(t, err)
	for _, b := range page {
		counts := must(batch.Count(ctx, s.Parts, b))(t)
		if b.Status != batch.Completed || counts.Counts != (batch.Counts{Total: 1, Completed: 1}) || b.CompletedAt.IsZero() {
			t.Errorf("batch %+v", b)
		}
		out := must(s.Files.Get(ctx, "acme", b.OutputFileID))(t)
		if stored := m.Objects.Bytes(out.Object.Bucket, out.Object.Key); stored != nil && int64(len(stored)) != out.Object.Bytes {
			t.Errorf("file of %d bytes: %+v", len(stored), out)
		}
	}
	if len(page) != 2 {
		t.Errorf("%d batches", len(page))
	}

	deleted := text(one("F deleted"), "id")
	if err := errOf(s.Files.Get(ctx, "acme", deleted)); !errors.Is(err, batch.ErrDeleted) {
		t.Errorf("deleted file: %v", err)
	}
	files, _, err := s.Files.List(ctx, "acme", batch.FileQuery{Limit: 10, After: deleted}, page[0].CreatedAt)
	ok(t, err)
	t.Logf("%d files before the deleted one", len(files))

	reserved := must(decode[rowItem](one("BR reserved")))(t).row()
	if reserved.Request.Hash() != reserved.Hash {
		t.Error("the request of a reservation has another hash now: a redelivery would be a conflict")
	}
	if q := reserved.Request; q.Object != nil || q.Service != "" || q.FileID == "" {
		t.Errorf("a request from before there were objects and services: %+v", q)
	}
	now := reserved.ClaimedAt.Add(time.Hour)
	ok(t, errOf(s.Bridge.Steal(ctx, reserved.Key, reserved.Ver, now, "thief", now.Add(time.Minute), now)))
	ok(t, s.Bridge.Confirm(ctx, reserved.Key, "thief", "batch_1", start))
	confirmed := must(decode[rowItem](one("BR confirmed")))(t).row()
	taken, is := errors.AsType[*bridge.TakenError](s.Bridge.Claim(ctx, confirmed))
	if !is || taken.Row.Job != confirmed.Job || taken.Row.Hash != confirmed.Request.Hash() {
		t.Errorf("claim of a confirmed id: %+v", taken)
	}

	send := must(decode[sendItem](one("RS ")))(t).send()
	next := send
	next.ID = "batch_2"
	ok(t, s.Sends.Record(ctx, next, send.Ver))

	u := must(decode[uploadItem](one("U pending")))(t).upload()
	var parts []string
	for id := range u.Parts {
		parts = append(parts, id)
	}
	slices.SortFunc(parts, func(a, b string) int { return u.Parts[a].CreatedAt.Compare(u.Parts[b].CreatedAt) })
	var bucket string
	var want []byte
	for _, id := range parts {
		for _, o := range f.Objects {
			if strings.HasSuffix(o.Key, "/"+id) {
				bucket, want = o.Bucket, append(want, o.Text...)
			}
		}
	}
	up := must(upload.New(upload.Ports{
		Store: s.Uploads, Completions: s.Uploads, Files: s.Files, Objects: m.Objects, Multiparts: m.Objects, Pieces: m.Objects,
	}, bucket, nil))(t)
	done := must(up.Complete(ctx, "acme", u.ID, openai.CompleteUpload{PartIDs: parts}, u.CreatedAt.Add(time.Hour)))(t)
	if got := m.Objects.Bytes(done.Object.Bucket, done.Object.Key); !bytes.Equal(got, want) || len(got) == 0 {
		t.Errorf("the upload became %q, want %q", got, want)
	}
}
