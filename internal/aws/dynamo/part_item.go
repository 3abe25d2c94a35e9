package dynamo

import (
	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// partItem is one part.
type partItem struct {
	head
	Tenant string `dynamodbav:"tenant"`
	Batch  string `dynamodbav:"batch"`
	N      int    `dynamodbav:"part"`

	State      batch.State `dynamodbav:"state"`
	Owner      lease.Token `dynamodbav:"owner,omitempty"`
	Ver        int64       `dynamodbav:"ver"`
	LeaseUntil int64       `dynamodbav:"lease_until,omitempty"`
	Attempts   int         `dynamodbav:"attempts"`
	Lapses     int         `dynamodbav:"lapses"`
	Steals     int         `dynamodbav:"steals"`
	Begun      int         `dynamodbav:"begun,omitempty"`
	Repeats    int         `dynamodbav:"repeats,omitempty"`

	Suspect *suspectItem `dynamodbav:"suspect,omitempty"` // absent when there is none: conditions ask for that
	Resends int          `dynamodbav:"resends,omitempty"`
	DeadAt  int64        `dynamodbav:"dead_at,omitempty"`

	FirstLine     int64 `dynamodbav:"first_line"`
	FirstPhysical int64 `dynamodbav:"first_physical"`
	Lines         int   `dynamodbav:"lines"`
	From          int64 `dynamodbav:"bytes_from"`
	To            int64 `dynamodbav:"bytes_to"`

	Processed int         `dynamodbav:"processed_lines"`
	DoneLines []byte      `dynamodbav:"done_lines,omitempty"`
	Chunks    []chunkItem `dynamodbav:"chunks"` // never absent: checkpoints append to it

	TaskToken string `dynamodbav:"task_token,omitempty"`
	LastError string `dynamodbav:"last_error,omitempty"`
	CreatedAt int64  `dynamodbav:"created_at,omitempty"`
}

type suspectItem struct {
	Line    int         `dynamodbav:"line"`
	Strikes int         `dynamodbav:"strikes"`
	By      lease.Token `dynamodbav:"by,omitempty"`
}

type chunkItem struct {
	Key   string `dynamodbav:"key"`
	N     int    `dynamodbav:"n"`
	OK    int    `dynamodbav:"ok"`
	Err   int    `dynamodbav:"err"`
	Bytes int64  `dynamodbav:"bytes"`
	Sum   string `dynamodbav:"sum"`
}

func newPartItem(p batch.Part) partItem {
	i := partItem{
		head:   newHead(partKey(p.PartKey), p.Due),
		Tenant: p.Tenant, Batch: p.Batch, N: p.N,
		State: p.State, Owner: p.Owner, Ver: p.Ver, LeaseUntil: millis(p.LeaseUntil),
		Attempts: p.Attempts, Lapses: p.Lapses, Steals: p.Steals, Begun: p.Begun, Repeats: p.Repeats, Resends: p.Resends, DeadAt: millis(p.DeadAt),
		FirstLine: p.FirstLine, FirstPhysical: p.FirstPhysical, Lines: p.Lines, From: p.From, To: p.To,
		Processed: p.Processed, DoneLines: p.DoneLines, Chunks: []chunkItem{},
		TaskToken: p.TaskToken, LastError: p.LastError, CreatedAt: millis(p.CreatedAt),
	}
	if !p.Suspect.None() {
		i.Suspect = (*suspectItem)(&p.Suspect)
	}
	if p.State == batch.Dead && i.DuePK != "" {
		i.DuePK = partKey(p.PartKey).deadShard()
	}
	for _, c := range p.Chunks {
		i.Chunks = append(i.Chunks, chunkItem(c))
	}
	return i
}

func (i partItem) part() batch.Part {
	p := batch.Part{
		PartKey: batch.PartKey{Tenant: i.Tenant, Batch: i.Batch, N: i.N},
		State:   i.State, Owner: i.Owner, Ver: i.Ver, LeaseUntil: fromMillis(i.LeaseUntil), Due: fromMillis(i.DueAt),
		Attempts: i.Attempts, Lapses: i.Lapses, Steals: i.Steals, Begun: i.Begun, Repeats: i.Repeats, Resends: i.Resends, DeadAt: fromMillis(i.DeadAt),
		FirstLine: i.FirstLine, FirstPhysical: i.FirstPhysical, Lines: i.Lines, From: i.From, To: i.To,
		Processed: i.Processed, DoneLines: i.DoneLines,
		TaskToken: i.TaskToken, LastError: i.LastError, CreatedAt: fromMillis(i.CreatedAt),
	}
	if i.Suspect != nil {
		p.Suspect = batch.Suspect(*i.Suspect)
	}
	for _, c := range i.Chunks {
		p.Chunks = append(p.Chunks, batch.Chunk(c))
	}
	return p
}
