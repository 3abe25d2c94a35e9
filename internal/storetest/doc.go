// Package storetest judges implementations of the ports of batch and access:
// one suite each, run on package memory and on the real adapter. For tests only.
//
// A suite is a list of cases ([Case]), each of them self-contained: it makes a
// tenant and ids of its own, so that cases run in parallel over one shared table
// or bucket, and again and again over the same one. Run… runs a suite as
// parallel subtests; …Cases gives the list, for tests that need single cases,
// such as the one that drops a store's conditions one by one and wants to see
// [Fails] say yes.
//
// An adapter's test is one line a port:
//
//	storetest.RunClaims(t, func(t storetest.T) storetest.ClaimsPorts {
//		return storetest.ClaimsPorts{Parts: s.Parts, Claims: s.Claims, Seed: …}
//	})
//
// A port's comment in batch/ports.go is what its suite holds; where the comment
// leaves something open, the suite accepts either. No case sleeps: what takes
// real time (a queue's visibility) is polled for, within bounds.
package storetest
