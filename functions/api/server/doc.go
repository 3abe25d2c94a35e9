// Package server is Holdfast's HTTP API as an http.Handler over ports: routes,
// authentication, and the translation between the wire (package openai) and
// the domain. It knows neither Lambda nor AWS; functions/api puts it behind
// API Gateway, tests put it behind a local listener.
//
// Every answer carries x-request-id, every refusal the contract's error body.
// errors.go holds the one table of which error becomes which status. A route
// needs exactly one scope:
//
//	POST /v1/files               submit   multipart, up to HOLDFAST_DIRECT_BYTES
//	GET  /v1/files               read     limit 1-10000, order, purpose, after=<file id>
//	GET  /v1/files/{id}          read
//	DELETE /v1/files/{id}        submit   not while a batch that is live reads or writes it
//	GET  /v1/files/{id}/content  read     302 to a URL good for ten minutes
//	GET  /v1/models              read     what HOLDFAST_MODELS names
//	GET  /v1/models/{id}         read
//	POST /v1/uploads             submit   a file in parts
//	GET  /v1/uploads/{id}        submit   ours: which parts have arrived
//	POST /v1/uploads/{id}/parts  submit   multipart, up to HOLDFAST_DIRECT_BYTES
//	POST /v1/uploads/{id}/part_urls  submit   ours: URLs that take parts of 5 MiB and more
//	POST /v1/uploads/{id}/complete   submit
//	POST /v1/uploads/{id}/cancel     submit
//	POST /v1/batches             submit
//	GET  /v1/batches             read     limit 1-100, after=<batch id>
//	GET  /v1/batches/{id}        read
//	POST /v1/batches/{id}/cancel submit
//	GET  /v1/batches/{id}/events read     ours: what happened to it; limit 1-1000, after=<event id>
//	GET  /v1/batches/{id}/receipts   read ours: who had which line replayed; 302 as for a file's content
//	GET  /v1/batches/{id}/receipts/gateway  read  ours: of calls for it by the gateway; limit 1-1000, after=<receipt id>
//	GET  /v1/receipts            read     ours: of calls for no batch, day=YYYY-MM-DD (UTC; today); limit, after likewise
//	POST /v1/admin/reclaim       admin    ours: a round of the reaper over the caller's tenant, 20 s at most
//	GET  /v1/admin/dead          admin    ours: dead parts; limit 1-100, after=<id>
//	GET  /v1/admin/dead/{batch}/{part}  admin
//	POST /v1/admin/redrive       admin    ours: brings a dead part back
//	GET  /v1/admin/keys          admin    ours: the tenant's keys; limit 1-100, after=<key id>
//	POST /v1/admin/keys          admin    ours: makes one with submit, read or both; its secret is shown once
//	POST /v1/admin/keys/{id}/disable  admin  any of the tenant's, the caller's own too
//	POST /v1/admin/keys/{id}/rotate   admin  those that it could make
//
// Whoever has a key with batch_replay is refused in all of it, and whoever asserts
// another tenant's X-Tenant-ID (access.Decide): nobody acts for others here.
//
// A page of a list may hold less than its limit, with has_more: an answer of the
// function has 6 MB at most.
//
// HEAD is answered where GET is, OPTIONS everywhere (without a key: it tells
// nothing but Allow). A request is authenticated before its body, its path's id
// or anything behind a port is looked at.
package server
