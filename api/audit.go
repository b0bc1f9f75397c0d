package api

// AuditHead names a line of the audit log, and with it all that precede it.
type AuditHead struct {
	Seq  uint64 `json:"seq" doc:"Number of the line"`
	Hash string `json:"hash" doc:"SHA-256 of it, without its newline, in hex"`
}

// AuditProblem is a place where the audit log is not what was written.
type AuditProblem struct {
	File string `json:"file" doc:"Name of the file"`
	Line int    `json:"line,omitempty" doc:"Line in it, from 1; absent: it is about the whole file"`
	What string `json:"what" doc:"What is wrong"`
}

// AuditReport is the answer to GET /v1/audit/verify.
type AuditReport struct {
	OK       bool           `json:"ok" doc:"Whether nothing is wrong"`
	Files    int            `json:"files" doc:"Files that were read"`
	Lines    uint64         `json:"lines" doc:"Lines that are there"`
	First    uint64         `json:"first" doc:"Number of the first of them"`
	Last     AuditHead      `json:"last" doc:"The last of them: note it elsewhere, and a later verification can be held against it"`
	Dropped  uint64         `json:"dropped" doc:"Lines up to this one the log has removed itself, being the oldest"`
	Lost     uint64         `json:"lost" doc:"Actions that the disk did not take, as the lines tell"`
	Torn     int            `json:"torn" doc:"Lines that were not written whole, and are told of"`
	Pending  bool           `json:"pending" doc:"The last line is being written, or was when its daemon ended"`
	Problems []AuditProblem `json:"problems" doc:"What is wrong"`
}
