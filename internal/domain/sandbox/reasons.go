package sandbox

// Reason distinguishes errors of one kind if they need different advice. The API passes it on by this name; the
// client has the text of the advice.
type Reason string

// Code is the stable identifier of an error's kind in answers of every API.
type Code string
