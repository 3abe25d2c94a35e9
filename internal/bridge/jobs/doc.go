// Package jobs lets the bridge start the jobs of another service: any that has
// POST /v1/jobs and keeps the contract of docs/jobs.md.
//
// The correlation id's job is posted with the batch id as its idempotency key.
// What makes that harmless, however often and by whomever it is done, is the
// service's promise that one key is one job; what makes a lost answer harmless is
// that the post is simply repeated, by this call or by whoever steals the claim.
//
//	answer                                        means
//	200, 201, {"id", "status"}                    started
//	202, or status "pending"                      not decided: look again, with growing pauses
//	status "refused"; 4xx with an error object,
//	but for those below                           refused, once the service doesn't know the key
//	409                                           is there already, if the service knows the key for this request_hash
//	408, 423, 425, 429, 499, 5xx, no whole answer later: some more tries, then unknown
//	401, 402, 403, 405, 407, 421, 426, 3xx,
//	404 without an error code                     the installation's fault ([ErrInstallation]): unknown
//	anything else                                 not this contract ([ErrAnswer]): unknown
//
// Only a refusal frees the claim, so nothing but the service's word about this one
// request may count as one: a secret that was turned, or a URL that leads nowhere,
// would otherwise throw every request away. And not even that word is taken for it
// alone: a service that checks a request before it looks for its key would refuse
// what it started an hour ago, because its input is gone by now. So the key is
// looked for (GET /v1/jobs/{batch id}) before a refusal is one, and not to know it takes
// an error object as well; that is also how [Submitter.Find] looks.
package jobs
