package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/upload"
)

// UploadItemsPorts are what the suite of upload.Store and upload.Completions
// needs: both over the same items.
type UploadItemsPorts struct {
	Store       upload.Store
	Completions upload.Completions
}

// RunUploadItems runs that suite.
func RunUploadItems(t *testing.T, open func(T) UploadItemsPorts) {
	t.Helper()
	run(t, UploadItemsCases(), open)
}

// UploadItemsCases is that suite.
func UploadItemsCases() []Case[UploadItemsPorts] {
	return []Case[UploadItemsPorts]{
		{"create/a new upload is pending and has nothing", uploadCreated},
		{"create/a taken id is refused", uploadTaken},
		{"unknown and foreign", uploadUnknown},
		{"add/parts come back, each once", uploadAdd},
		{"add/only so many", uploadFull},
		{"begin/the first stays", uploadBegin},
		{"start and settle/the hash decides who goes on", uploadHash},
		{"settle/without a start", uploadSettleAtOnce},
		{"settle/one of many objects", uploadSettleRace},
		{"every status refuses what doesn't leave it", uploadStatuses},
		{"cancel or settle/one of them", uploadCancelRace},
		{"a context that is over", uploadItemsInterrupted},
	}
}

func fullUpload() upload.Upload {
	return upload.Upload{
		Tenant: tenant(), ID: "upload_" + unique(), Status: upload.Pending, Bytes: 10 << 30, Filename: awkward, Purpose: "batch",
		FileExpiry: 36 * time.Hour, CreatedAt: at(0), ExpiresAt: at(24 * time.Hour),
	}
}

func newUpload(t T, p UploadItemsPorts) upload.Upload {
	t.Helper()
	u := fullUpload()
	succeeds(t, "create upload", p.Store.Create(t.Context(), u))
	return u
}

func lookUpload(t T, p UploadItemsPorts, u upload.Upload) upload.Upload {
	t.Helper()
	return value(p.Store.Get(t.Context(), u.Tenant, u.ID))(t, "get upload")
}

func aPart(n int) upload.Part {
	return upload.Part{Bytes: int64(n) << 20, ETag: fmt.Sprintf("%q", unique()), CreatedAt: at(time.Duration(n) * time.Second)}
}

func uploadCreated(t T, p UploadItemsPorts) {
	u := fullUpload()
	u.Status = upload.Completed // not the caller's to say
	succeeds(t, "create", p.Store.Create(t.Context(), u))
	u.Status, u.Ver = upload.Pending, 1
	same(t, "stored", lookUpload(t, p, u), u)
}

func uploadTaken(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	succeeds(t, "create again, the answer lost", p.Store.Create(t.Context(), u))
	if got := lookUpload(t, p, u); got.Ver != 1 {
		t.Errorf("created again: ver %d", got.Ver)
	}
	other := u
	other.Bytes++
	refuses(t, "create", p.Store.Create(t.Context(), other), batch.ErrExists)
	if got := lookUpload(t, p, u); got.Bytes != u.Bytes {
		t.Errorf("replaced: %+v", got)
	}
}

// moves are every write of an upload by its name.
func moves(p UploadItemsPorts) map[string]func(ctx context.Context, tenant, id string) error {
	return map[string]func(ctx context.Context, tenant, id string) error{
		"AddPart": func(ctx context.Context, tenant, id string) error {
			return fault(p.Store.AddPart(ctx, tenant, id, "part_"+unique(), aPart(1), 9))
		},
		"Begin": func(ctx context.Context, tenant, id string) error {
			return fault(p.Store.Begin(ctx, tenant, id, "m"))
		},
		"Cancel": func(ctx context.Context, tenant, id string) error { return fault(p.Store.Cancel(ctx, tenant, id)) },
		"Start": func(ctx context.Context, tenant, id string) error {
			return fault(p.Completions.Start(ctx, tenant, id, "hash"))
		},
		"Settle": func(ctx context.Context, tenant, id string) error {
			return fault(p.Completions.Settle(ctx, tenant, id, "hash", fullObject(), "md5", at(time.Hour)))
		},
		"Finish": func(ctx context.Context, tenant, id string) error {
			return fault(p.Completions.Finish(ctx, tenant, id))
		},
	}
}

func uploadUnknown(t T, p UploadItemsPorts) {
	u, foreign := newUpload(t, p), tenant()
	all := moves(p)
	all["Get"] = func(ctx context.Context, tenant, id string) error { return fault(p.Store.Get(ctx, tenant, id)) }
	for name, do := range all {
		refuses(t, name+" of an unknown one", do(t.Context(), u.Tenant, "upload_none"), batch.ErrNotFound)
		refuses(t, name+" of none", do(t.Context(), u.Tenant, ""), batch.ErrNotFound)
		refuses(t, name+" of another tenant's", do(t.Context(), foreign, u.ID), batch.ErrNotFound)
	}
	u.Ver = 1
	same(t, "stored", lookUpload(t, p, u), u)
}

func uploadAdd(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	u.Parts = map[string]upload.Part{}
	for n := range 3 {
		id, part := "part_"+unique(), aPart(n)
		stored := part
		stored.CreatedAt = time.UnixMilli(part.CreatedAt.UnixMilli()).UTC()
		u.Parts[id] = stored
		got := value(p.Store.AddPart(t.Context(), u.Tenant, u.ID, id, part, 9))(t, "add")
		u.Ver = got.Ver
		same(t, "answered", got, u)
		got = value(p.Store.AddPart(t.Context(), u.Tenant, u.ID, id, part, 9))(t, "add again")
		same(t, "answered again", got, u)
		other := part
		other.Bytes++
		refuses(t, "another part of that id", fault(p.Store.AddPart(t.Context(), u.Tenant, u.ID, id, other, 9)), upload.ErrClosed)
	}
	same(t, "stored", lookUpload(t, p, u), u)
}

func uploadFull(t T, p UploadItemsPorts) {
	const most = 3
	u := newUpload(t, p)
	errs := race(racers, func(i int) error {
		return fault(p.Store.AddPart(t.Context(), u.Tenant, u.ID, fmt.Sprint("part_", i), aPart(1), most))
	})
	added := 0
	for _, err := range errs {
		if err == nil {
			added++
		} else {
			refuses(t, "one more", err, upload.ErrFull)
		}
	}
	if n := len(lookUpload(t, p, u).Parts); n != most || added != most {
		t.Errorf("%d parts of %d added, want %d", n, added, most)
	}
}

func uploadBegin(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	answers := race(racers, func(i int) string {
		got, err := p.Store.Begin(t.Context(), u.Tenant, u.ID, fmt.Sprintf("m-%d", i))
		if err != nil {
			return err.Error()
		}
		return got.Multipart
	})
	for _, a := range answers {
		if a != answers[0] || a == "" {
			t.Errorf("one is answered %q, another %q", answers[0], a)
		}
	}
	if got := lookUpload(t, p, u); got.Multipart != answers[0] {
		t.Errorf("stored %q, answered %q", got.Multipart, answers[0])
	}
}

func uploadHash(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	got := value(p.Completions.Start(t.Context(), u.Tenant, u.ID, "one"))(t, "start")
	if got.Status != upload.Completing || got.PartsHash != "one" {
		t.Errorf("started %+v", got)
	}
	again := value(p.Completions.Start(t.Context(), u.Tenant, u.ID, "one"))(t, "start again")
	same(t, "started again", again, got)
	refuses(t, "start with another hash", fault(p.Completions.Start(t.Context(), u.Tenant, u.ID, "two")), upload.ErrClosed)
	refuses(t, "settle with another hash", fault(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "two", fullObject(), "md5", at(0))), upload.ErrClosed)
	same(t, "stored", lookUpload(t, p, u), got)

	o := fullObject()
	got = value(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "one", o, "md5", at(time.Hour)))(t, "settle")
	want := u
	want.Status, want.PartsHash, want.Object, want.MD5, want.SettledAt, want.Ver = upload.Settled, "one", o, "md5", at(time.Hour), got.Ver
	same(t, "settled", got, want)
	other := o
	other.Key = "other"
	again = value(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "one", other, "other", at(2*time.Hour)))(t, "settle another object")
	same(t, "settled again", again, got)
	same(t, "stored", lookUpload(t, p, u), got)
	refuses(t, "settle with another hash", fault(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "two", o, "md5", at(0))), upload.ErrClosed)
	again = value(p.Completions.Start(t.Context(), u.Tenant, u.ID, "one"))(t, "start when settled")
	same(t, "started when settled", again, got)

	got = value(p.Completions.Finish(t.Context(), u.Tenant, u.ID))(t, "finish")
	want.Status, want.Ver = upload.Completed, got.Ver
	same(t, "finished", got, want)
	again = value(p.Completions.Finish(t.Context(), u.Tenant, u.ID))(t, "finish again")
	same(t, "finished again", again, got)
	again = value(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "one", other, "other", at(0)))(t, "settle when completed")
	same(t, "settled when completed", again, got)
	again = value(p.Completions.Start(t.Context(), u.Tenant, u.ID, "one"))(t, "start when completed")
	same(t, "started when completed", again, got)
	refuses(t, "start with another hash", fault(p.Completions.Start(t.Context(), u.Tenant, u.ID, "two")), upload.ErrClosed)
	same(t, "stored", lookUpload(t, p, u), got)
}

func uploadSettleAtOnce(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	got := value(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "one", fullObject(), "", at(0)))(t, "settle")
	if got.Status != upload.Settled || got.PartsHash != "one" || got.MD5 != "" {
		t.Errorf("settled %+v", got)
	}
}

func uploadSettleRace(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	keys := race(racers, func(i int) string {
		o := fullObject()
		o.Key = fmt.Sprint("object-", i)
		got, err := p.Completions.Settle(t.Context(), u.Tenant, u.ID, "one", o, "md5", at(0))
		if err != nil {
			return err.Error()
		}
		return got.Object.Key
	})
	for _, k := range keys {
		if k != keys[0] {
			t.Errorf("one is told %q, another %q", keys[0], k)
		}
	}
	if got := lookUpload(t, p, u); got.Object.Key != keys[0] {
		t.Errorf("stored %q, told %q", got.Object.Key, keys[0])
	}
}

// uploadStatuses tries every write in every status. Those that are allowed have
// cases of their own.
func uploadStatuses(t T, p UploadItemsPorts) {
	to := func(do ...func(context.Context, string, string) error) func(T, upload.Upload) {
		return func(t T, u upload.Upload) {
			for _, do := range do {
				succeeds(t, "move on", do(t.Context(), u.Tenant, u.ID))
			}
		}
	}
	m := moves(p)
	for _, c := range []struct {
		status  upload.Status
		reach   func(T, upload.Upload)
		refused []string
	}{
		{upload.Pending, to(), []string{"Finish"}},
		{upload.Completing, to(m["Start"]), []string{"AddPart", "Begin", "Finish"}},
		{upload.Settled, to(m["Settle"]), []string{"AddPart", "Begin", "Cancel"}},
		{upload.Completed, to(m["Settle"], m["Finish"]), []string{"AddPart", "Begin", "Cancel"}},
		{upload.Cancelled, to(m["Cancel"]), []string{"AddPart", "Begin", "Start", "Settle", "Finish"}},
		{upload.Cancelled, to(m["Start"], m["Cancel"]), []string{"AddPart", "Begin", "Start", "Settle", "Finish"}},
	} {
		status := c.status
		for _, name := range c.refused {
			u := newUpload(t, p)
			c.reach(t, u)
			before := lookUpload(t, p, u)
			if before.Status != status {
				t.Errorf("%s, want %s", before.Status, status)
			}
			refuses(t, fmt.Sprintf("%s when %s", name, status), m[name](t.Context(), u.Tenant, u.ID), upload.ErrClosed)
			same(t, fmt.Sprintf("stored after %s when %s", name, status), lookUpload(t, p, u), before)
		}
	}
	// Cancel leaves pending and completing, and is its own lost write.
	for _, reach := range []func(T, upload.Upload){to(), to(m["Start"])} {
		u := newUpload(t, p)
		reach(t, u)
		for range 2 {
			got := value(p.Store.Cancel(t.Context(), u.Tenant, u.ID))(t, "cancel")
			if got.Status != upload.Cancelled {
				t.Errorf("cancelled %+v", got)
			}
			same(t, "stored", lookUpload(t, p, u), got)
		}
	}
}

func uploadCancelRace(t T, p UploadItemsPorts) {
	u := newUpload(t, p)
	errs := race(racers, func(i int) error {
		if i%2 == 0 {
			return fault(p.Store.Cancel(t.Context(), u.Tenant, u.ID))
		}
		return fault(p.Completions.Settle(t.Context(), u.Tenant, u.ID, "hash", fullObject(), "md5", at(0)))
	})
	cancelled := lookUpload(t, p, u).Status == upload.Cancelled
	for i, err := range errs {
		if (i%2 == 0) == cancelled {
			succeeds(t, "the way it went", err)
		} else {
			refuses(t, "the other way", err, upload.ErrClosed)
		}
	}
}

func uploadItemsInterrupted(t T, p UploadItemsPorts) {
	u, other := newUpload(t, p), fullUpload()
	calls := map[string]func(context.Context) error{
		"Create": func(ctx context.Context) error { return p.Store.Create(ctx, other) },
		"Get":    func(ctx context.Context) error { return fault(p.Store.Get(ctx, u.Tenant, u.ID)) },
	}
	for name, do := range moves(p) {
		calls[name] = func(ctx context.Context) error { return do(ctx, u.Tenant, u.ID) }
	}
	interrupts(t, calls)
	u.Ver = 1
	same(t, "stored", lookUpload(t, p, u), u)
}
