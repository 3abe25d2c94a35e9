// Package gateway is the OpenAI endpoints in front of the configured upstreams, as an
// http.Handler over ports: for people, and for workers elsewhere who replay lines of a
// batch as its submitter. functions/gateway puts it behind a function URL.
//
//	gateway.go   Gateway: routes, and who may
//	call.go      one call: receipt, upstream, answer, receipt
//	relay.go     the reply on its way through: flushed, hashed, searched for its usage
//	views.go     batches as they were 5 s ago at most
//	headers.go   which headers pass
//	answers.go   which error becomes which answer, and the log
//
//	POST <each of HOLDFAST_ENDPOINTS>   submit, or the replay rule
//	GET  /v1/models                     read
//
// A key with batch_replay is under access.Decide's rule in all of it and needs no
// other scope; nor does another scope lend it anything. It calls its batch's endpoint
// and nothing else: there is a receipt of whatever it is let do.
//
// A call is made in this order: route, key, whether it was refused too often, the
// requests a minute of the key's tenant, replay rule, those of the tenant acted for,
// scope, body, receipt, the upstream's secret and a connection, the view of the batch once
// more if it is too old by now, the request. So who may not is told so whatever the body is, and no call is
// made without a receipt of it.
//
// Of what a client sends, the body passes, byte for byte, and the endpoint. No header
// does, and no query: nothing that could pick a tenant, a batch or a priority, name a
// person, or be mistaken for ours. Of what the upstream answers, status and body pass,
// and the headers that headers.go lists; but for what package upstream keeps
// back: what is about our credential or quotes it, and redirects.
//
// It is no httputil.ReverseProxy: that copies headers but for those it is told to
// drop, where nothing must pass that isn't known; it words upstream trouble itself; its
// request is made before there is a hook that could refuse after the body was read;
// and how a copy ended (whole, torn, client gone), which the receipt says, is not
// to be had from it. What is left that it would do is the loop in relay.go.
package gateway
