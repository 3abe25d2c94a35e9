package cost

// Kind is one thing that is billed.
type Kind string

// The kinds, in the order a bill lists them.
const (
	Compute       Kind = "compute"         // work functions, GB-seconds
	OtherCompute  Kind = "compute_other"   // api, ingest, plan, finish, reap, GB-seconds
	Invocations   Kind = "invocations"     // of functions
	TableWrites   Kind = "table_writes"    // write units, both indexes included
	TableReads    Kind = "table_reads"     // read units
	ObjectPuts    Kind = "object_puts"     // PUT, COPY, POST, LIST requests
	ObjectGets    Kind = "object_gets"     // GET, HEAD and other requests
	QueueRequests Kind = "queue_requests"  // each of at most 64 KB
	Transitions   Kind = "transitions"     // states entered, retries, child executions
	HTTPRequests  Kind = "http_requests"   // of the HTTP API
	LogBytes      Kind = "log_gb"          // ingested
	SecretCalls   Kind = "secret_calls"    // reads of the upstream's secret
	Secrets       Kind = "secrets"         // kept for a month
	Metrics       Kind = "metrics"         // of one's own, for a month in which it is written
	LogStorage    Kind = "log_gb_months"   // kept
	TableStorage  Kind = "table_gb_months" // kept, point-in-time recovery included
	ObjectStorage Kind = "object_gb_month" // kept
	Alarms        Kind = "alarms"          // of one standard metric, for a month
)

// Region and Date say what the table of prices is of.
const (
	Region = "us-east-1"
	Date   = "2026-11-29"
)

// Price is one row of the table.
type Price struct {
	Kind    Kind
	Name    string  // for a person
	Unit    string  // what is counted
	Dollars float64 // for Per of them
	Per     float64
	Source  string // the page that states it
}

// Each is the price of one unit, in dollars.
func (p Price) Each() float64 { return p.Dollars / p.Per }

const (
	million  = 1e6
	thousand = 1e3

	// gb is what AWS bills as a GB: of memory, of storage, of logs.
	gb = 1 << 30
)

// Prices is the one table: list prices of Region at Date, first volume tier,
// arm64 functions, standard workflows, an on-demand table of the standard class,
// standard queues. No free tier is counted.
var Prices = []Price{
	{Compute, "work functions", "GB-s", 0.0000133334, 1, "aws.amazon.com/lambda/pricing, Arm"},
	{OtherCompute, "api, ingest, plan, finish, reap", "GB-s", 0.0000133334, 1, "aws.amazon.com/lambda/pricing, Arm"},
	{Invocations, "invocations", "requests", 0.20, million, "aws.amazon.com/lambda/pricing"},
	{TableWrites, "table writes", "write units", 0.625, million, "aws.amazon.com/dynamodb/pricing/on-demand"},
	{TableReads, "table reads", "read units", 0.125, million, "aws.amazon.com/dynamodb/pricing/on-demand"},
	{ObjectPuts, "object puts", "requests", 0.005, thousand, "aws.amazon.com/s3/pricing, S3 Standard"},
	{ObjectGets, "object gets", "requests", 0.0004, thousand, "aws.amazon.com/s3/pricing, S3 Standard"},
	{QueueRequests, "queue", "requests", 0.40, million, "aws.amazon.com/sqs/pricing"},
	{Transitions, "transitions", "transitions", 0.025, thousand, "aws.amazon.com/step-functions/pricing"},
	{HTTPRequests, "HTTP API", "requests", 1.00, million, "aws.amazon.com/api-gateway/pricing"},
	{LogBytes, "logs", "GB", 0.50, 1, "aws.amazon.com/cloudwatch/pricing"},
	{SecretCalls, "secret reads", "calls", 0.05, 10 * thousand, "aws.amazon.com/secrets-manager/pricing"},
	{Secrets, "secret", "secret-months", 0.40, 1, "aws.amazon.com/secrets-manager/pricing"},
	{Metrics, "metrics", "metric-months", 0.30, 1, "aws.amazon.com/cloudwatch/pricing, first 10,000"},
	{LogStorage, "logs kept", "GB-months", 0.03, 1, "aws.amazon.com/cloudwatch/pricing"},
	{TableStorage, "table kept", "GB-months", 0.25 + 0.20, 1, "aws.amazon.com/dynamodb/pricing/on-demand, with PITR"},
	{ObjectStorage, "objects kept", "GB-months", 0.023, 1, "aws.amazon.com/s3/pricing, S3 Standard"},
	{Alarms, "alarms", "alarm-months", 0.10, 1, "aws.amazon.com/cloudwatch/pricing"},
}

// GBSeconds is what a function of so much memory is billed for in so many
// milliseconds.
func GBSeconds(megabytes, milliseconds float64) float64 {
	return megabytes / 1024 * milliseconds / 1000
}
