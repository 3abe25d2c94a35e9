package cost

import "time"

// Idle is what a deployed stack does while nobody asks anything of it.
type Idle struct {
	// Queues is how many queues Lambda polls. A standard queue has five pollers at
	// least, each with a receive of 20 s under way all the time.
	Queues int
	// Secrets is how many secrets are kept (the upstream's bearer token).
	Secrets int
	// Metrics is how many metrics of our own are written each hour. Those that AWS
	// keeps of its services are free.
	Metrics float64
	// Runs is how many times a month a rule's schedule invokes a function, which
	// itself is free: what is billed of EventBridge is its Scheduler, and events of
	// one's own. Each run takes so many megabytes for so many milliseconds, reads so
	// many units of the table, makes so many requests of queues and logs so many
	// bytes.
	Runs                          float64
	RunMemory, RunTime            float64
	RunReads, RunRequests         float64
	RunLog                        float64
	LogStored, TableGB, ObjectsGB float64 // GB kept through the month
}

// Month is as long as AWS takes one for.
const Month = 730 * time.Hour

const (
	pollersEach = 5
	longPoll    = 20 * time.Second
)

// Monthly is the usage of a month without work. Alarms are not in it.
func (i Idle) Monthly() Usage {
	u := Usage{}
	u.Add(QueueRequests, float64(i.Queues)*pollersEach*Month.Seconds()/longPoll.Seconds()+i.Runs*i.RunRequests)
	u.Add(Secrets, float64(i.Secrets))
	u.Add(Metrics, i.Metrics)
	u.Add(Invocations, i.Runs)
	u.Add(OtherCompute, i.Runs*GBSeconds(i.RunMemory, i.RunTime))
	u.Add(TableReads, i.Runs*i.RunReads)
	u.Add(LogBytes, i.Runs*i.RunLog/gb)
	u.Add(LogStorage, i.LogStored+i.Runs*i.RunLog/gb)
	u.Add(TableStorage, i.TableGB)
	u.Add(ObjectStorage, i.ObjectsGB)
	return u
}
