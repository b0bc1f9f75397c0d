package jailtest

// What goes between a test and a hostile VMM, as packets of JSON: a Hello, and then an answer, of
// attempts' names with what they came to, for each Order.

// MaxMessage bounds a packet, in bytes.
const MaxMessage = 64 << 10

// Hello is the first that a VMM says.
type Hello struct {
	Socket uint64 // inode of its end of the connection, by which it is told from others
}

// Order is what it is to try. The first, which is the answer to its Hello, is for its vCPUs' threads.
type Order struct {
	World World
	Try   []string // names of attempts; in the first, none is an order to be a good VMM for now
}

// Do makes the attempts, in order.
func (o Order) Do() map[string]string {
	all := map[string]string{}
	for _, name := range o.Try {
		if a, ok := Named(name); ok {
			all[name] = a.Try(o.World)
		}
	}
	return all
}
