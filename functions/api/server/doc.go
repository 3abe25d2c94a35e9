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
//	GET  /v1/files/{id}          read
//	GET  /v1/files/{id}/content  read     302 to a URL good for ten minutes
//	POST /v1/batches             submit
//	GET  /v1/batches             read     limit 1-100, after=<batch id>
//	GET  /v1/batches/{id}        read
//
// HEAD is answered where GET is, OPTIONS everywhere (without a key: it tells
// nothing but Allow). A request is authenticated before its body, its path's id
// or anything behind a port is looked at.
package server
