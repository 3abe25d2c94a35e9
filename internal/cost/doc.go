// Package cost turns counted calls into dollars: one table of prices, one way to
// read the functions' usage lines, one bill. holdfast cost and the bench share
// it, so that what is promised and what is billed are reckoned alike.
//
// It knows nothing of AWS but its prices, and makes no call.
//
//	Invocation  what one invocation of a function did: its "usage" log line
//	Usage       quantities by kind, summed over invocations and the workflow
//	Bill        those times the table, and beside it the floor: what the same
//	            lines would cost with no waste at all
//
// Nothing here counts a free tier, a savings plan or a volume tier: a bill is
// what one more batch adds in an account that is past all of the free amounts.
package cost
