package batch_test

import (
	"encoding/json"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

func TestToWire(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 999_000_000) }
	line, param := 3, "custom_id"
	base := batch.Batch{Tenant: "acme", ID: "batch_1", Status: batch.Validating, Submitter: "ann", Endpoint: wEndpoint,
		Input: batch.Input{FileID: "file-1"}, Window: "24h", CreatedAt: at(100), Deadline: at(86500)}
	running := base
	running.Status, running.Model, running.InProgressAt, running.Parts, running.Lines = batch.InProgress, "m-1", at(110), 2, 10
	for _, c := range []struct {
		name   string
		change func() batch.Batch
		counts batch.Counts
		want   string
	}{
		{"validating: nothing is known yet", func() batch.Batch { return base }, batch.Counts{},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":null,"errors":null,"input_file_id":"file-1","completion_window":"24h","status":"validating","output_file_id":null,"error_file_id":null,"created_at":100,"in_progress_at":null,"expires_at":86500,"finalizing_at":null,"completed_at":null,"failed_at":null,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":0,"completed":0,"failed":0},"usage":null,"metadata":null,"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"failed: reasons, no usage", func() batch.Batch {
			b := base
			b.Status, b.FailedAt = batch.Failed, at(105)
			b.Errors = []openai.BatchError{{Code: "invalid_custom_id", Message: "m", Param: &param, Line: &line}, {Code: "empty_file", Message: "e"}}
			return b
		}, batch.Counts{},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":null,"errors":{"object":"list","data":[{"code":"invalid_custom_id","message":"m","param":"custom_id","line":3},{"code":"empty_file","message":"e","param":null,"line":null}]},"input_file_id":"file-1","completion_window":"24h","status":"failed","output_file_id":null,"error_file_id":null,"created_at":100,"in_progress_at":null,"expires_at":86500,"finalizing_at":null,"completed_at":null,"failed_at":105,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":0,"completed":0,"failed":0},"usage":null,"metadata":null,"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"in progress", func() batch.Batch { b := running; b.Metadata = map[string]string{"k": "v"}; return b }, batch.Counts{Total: 10, Completed: 4, Failed: 1},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":"m-1","errors":null,"input_file_id":"file-1","completion_window":"24h","status":"in_progress","output_file_id":null,"error_file_id":null,"created_at":100,"in_progress_at":110,"expires_at":86500,"finalizing_at":null,"completed_at":null,"failed_at":null,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":10,"completed":4,"failed":1},"usage":null,"metadata":{"k":"v"},"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"told to cancel: cancelling, wherever it is", func() batch.Batch {
			b := running
			b.Status, b.Ending, b.EndingAt, b.FinalizingAt = batch.Finalizing, batch.Cancelled, at(120), at(125)
			return b
		}, batch.Counts{Total: 10},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":"m-1","errors":null,"input_file_id":"file-1","completion_window":"24h","status":"cancelling","output_file_id":null,"error_file_id":null,"created_at":100,"in_progress_at":110,"expires_at":86500,"finalizing_at":125,"completed_at":null,"failed_at":null,"expired_at":null,"cancelling_at":120,"cancelled_at":null,"request_counts":{"total":10,"completed":0,"failed":0},"usage":null,"metadata":null,"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"cancelled: cancelling_at stays", func() batch.Batch {
			b := running
			b.Status, b.Ending, b.EndingAt, b.FinalizingAt, b.CancelledAt = batch.Cancelled, batch.Cancelled, at(120), at(125), at(130)
			b.ErrorFileID = "file-e"
			return b
		}, batch.Counts{Total: 10, Failed: 10},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":"m-1","errors":null,"input_file_id":"file-1","completion_window":"24h","status":"cancelled","output_file_id":null,"error_file_id":"file-e","created_at":100,"in_progress_at":110,"expires_at":86500,"finalizing_at":125,"completed_at":null,"failed_at":null,"expired_at":null,"cancelling_at":120,"cancelled_at":130,"request_counts":{"total":10,"completed":0,"failed":10},"usage":{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0},"metadata":null,"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"expiring: shows what it does", func() batch.Batch {
			b := running
			b.Ending, b.EndingAt = batch.Expired, at(86501)
			return b
		}, batch.Counts{Total: 10},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":"m-1","errors":null,"input_file_id":"file-1","completion_window":"24h","status":"in_progress","output_file_id":null,"error_file_id":null,"created_at":100,"in_progress_at":110,"expires_at":86500,"finalizing_at":null,"completed_at":null,"failed_at":null,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":10,"completed":0,"failed":0},"usage":null,"metadata":null,"lease_expired_events":0,"steals":0,"repeats":0,"dead_parts":0}`},
		{"completed", func() batch.Batch {
			b := running
			b.Status, b.Ending, b.EndingAt, b.FinalizingAt, b.CompletedAt = batch.Completed, batch.Completed, at(120), at(125), at(130)
			b.OutputFileID, b.ErrorFileID = "file-o", "file-e"
			b.Usage = openai.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3}
			b.Troubles = batch.Troubles{Lapses: 4, Steals: 3, Repeats: 21, Dead: 1}
			return b
		}, batch.Counts{Total: 10, Completed: 9, Failed: 1},
			`{"id":"batch_1","object":"batch","endpoint":"/v1/chat/completions","model":"m-1","errors":null,"input_file_id":"file-1","completion_window":"24h","status":"completed","output_file_id":"file-o","error_file_id":"file-e","created_at":100,"in_progress_at":110,"expires_at":86500,"finalizing_at":125,"completed_at":130,"failed_at":null,"expired_at":null,"cancelling_at":null,"cancelled_at":null,"request_counts":{"total":10,"completed":9,"failed":1},"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3},"metadata":null,"lease_expired_events":4,"steals":3,"repeats":21,"dead_parts":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := json.Marshal(batch.ToWire(c.change(), batch.Standing{Counts: c.counts, Troubles: c.change().Troubles}))
			must(t, err)
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	w := newWorld(t)
	standing := func(b batch.Batch) batch.Standing {
		t.Helper()
		c, err := batch.Count(t.Context(), w.m.Table.Parts, b)
		must(t, err)
		return c
	}
	count := func(b batch.Batch) batch.Counts { return standing(b).Counts }
	b := w.create(requests(10))
	if got := count(b); got != (batch.Counts{}) {
		t.Errorf("validating: %+v", got)
	}
	_, err := w.planner(&batch.PlannerOptions{PartLines: 4}).Plan(t.Context(), wTenant, b.ID, wNow)
	must(t, err)
	if got := count(w.batch(b.ID)); got != (batch.Counts{Total: 10}) {
		t.Errorf("planned: %+v", got)
	}
	p := w.truth.Table.PartsOf(wTenant, b.ID)[1]
	w.work(p, [][]int64{{4, 6}, {5, 7}}, func(i int64) batch.Record { r := mixed(i); r.OK = i != 5; return r })
	if got := count(w.batch(b.ID)); got != (batch.Counts{Total: 10, Completed: 3, Failed: 1}) {
		t.Errorf("one part done: %+v", got)
	}
	befell := w.truth.Table.PartsOf(wTenant, b.ID)
	befell[0].Lapses, befell[0].Steals, befell[0].Repeats = 2, 1, 30
	befell[2].Lapses, befell[2].Repeats, befell[2].State, befell[2].DeadAt = 3, 4, batch.Sealed, wNow
	for _, p := range befell {
		w.truth.Table.SeedPart(p)
	}
	if got, want := standing(w.batch(b.ID)).Troubles, (batch.Troubles{Lapses: 5, Steals: 1, Repeats: 34, Dead: 1}); got != want {
		t.Errorf("troubles %+v, want %+v", got, want)
	}
	closed := w.batch(b.ID)
	closed.Troubles = batch.Troubles{Lapses: 9}
	closed.Status, closed.Counts = batch.Completed, batch.Counts{Total: 10, Completed: 8, Failed: 2}
	if got := standing(closed); got != (batch.Standing{Counts: closed.Counts, Troubles: closed.Troubles}) {
		t.Errorf("closed: %+v, want what was frozen", got)
	}
}

func TestFileToWire(t *testing.T) {
	f := batch.File{ID: "file-1", Purpose: "batch", Filename: "a\"b.jsonl", Object: batch.Object{Bytes: 7}, CreatedAt: time.Unix(5, 0)}
	got, err := json.Marshal(batch.FileToWire(f))
	must(t, err)
	if want := `{"id":"file-1","object":"file","bytes":7,"created_at":5,"filename":"a\"b.jsonl","purpose":"batch","status":"processed"}`; string(got) != want {
		t.Errorf("got %s", got)
	}
}
