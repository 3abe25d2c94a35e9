package access

// AfterRead is the caller of a request for which the table was read already.
func AfterRead(c Caller) Caller {
	c.read = true
	return c
}
