package bridge

import (
	"context"
	"time"

	"holdfast/internal/lease"
)

// The ports. As everywhere: `now` and the instants beside it are the caller's one
// reading of the clock, times are stored in whole milliseconds, a call may be
// repeated after an error that is not one of errors.go's, adapters retry
// throttling and torn connections themselves. Each has a suite in storetest that
// runs on memory and on the real adapter.

// Store keeps the rows.
type Store interface {
	// Claim inserts r where its key is free (C1). *TakenError with the row found
	// otherwise, except that a reserved row with r's token is the caller's own
	// lost write: success.
	Claim(ctx context.Context, r Row) error
	// Steal takes a stale reservation over (C2: state=reserved AND ver=seen AND
	// claimed_at<cut) for tok: claimed now, due as given, not given back, never to be
	// forgotten, ver+1; the answer is the row as it now is. A reserved row that tok
	// holds is the caller's own lost write. lease.ErrLost otherwise, also when there is
	// no row: claim again to see why.
	Steal(ctx context.Context, k Key, seen int64, cut time.Time, tok lease.Token, due, now time.Time) (Row, error)
	// Confirm makes the row final (C3: state=reserved AND claim_token=tok), with
	// the job's name; it is due no more, and may be forgotten at expires, in whole
	// seconds. A row that tok confirmed counts as success. lease.ErrLost otherwise.
	Confirm(ctx context.Context, k Key, tok lease.Token, job string, expires time.Time) error
	// GiveBack marks a reservation as given back (C3b: state=reserved AND
	// claim_token=tok): claimed at the instant named, which makes it stale sooner; due
	// when it was, ver+1. lease.ErrLost otherwise.
	GiveBack(ctx context.Context, k Key, tok lease.Token, claimed time.Time) error
	// Release deletes the row (C4: state=reserved AND claim_token=tok). That it is
	// gone already is no error. lease.ErrLost otherwise.
	Release(ctx context.Context, k Key, tok lease.Token) error
	// Row reads the row of this name ([Key.Name]), strongly consistent, for whoever
	// knows no more of it than what an index says. [ErrNotFound].
	Row(ctx context.Context, tenant, name string) (Row, error)
}

// Submitter starts jobs: Holdfast's own batches, or those of another service. One that
// takes only some services' requests says so by a method Serves(service string) bool,
// as [Services] does.
type Submitter interface {
	// Submit starts the job of this id and returns its name, which for Holdfast's
	// own batches is the id. Submitting the same request under the same id again
	// finds the job started, at any time and from any process. [ErrRefused], with
	// the cause, only when no job of this id exists and none can come of this call
	// ([ErrLater] beside it: the same may be taken later); after any other error there
	// may be one.
	Submit(ctx context.Context, id string, r Request, now time.Time) (job string, err error)
	// Find returns the job of this id if it was started, having done whatever its
	// start still lacked. [ErrNotFound] if it wasn't; ErrRefused with ErrConflict
	// if the id stands for another request.
	Find(ctx context.Context, id string, r Request) (job string, err error)
}

// Sends keeps, for each request that came without a correlation id, the last id
// that it was given. Reads are strongly consistent.
type Sends interface {
	// Last reads one. [ErrNotFound].
	Last(ctx context.Context, tenant, hash string) (Send, error)
	// Record stores s with ver seen+1: where there is none, if seen is 0, else in
	// place of the one with that ver. *ChangedError with the one found otherwise,
	// except that one with s's id is the caller's own lost write: success.
	Record(ctx context.Context, s Send, seen int64) error
}

// Send is the id that a request without a correlation id was given.
type Send struct {
	Tenant    string
	Hash      string // of the request
	ID        string // the batch's
	At        time.Time
	ExpiresAt time.Time // when it may be forgotten
	Ver       int64
}
