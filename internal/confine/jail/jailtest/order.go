package jailtest

// The messages between a test and a hostile VMM are packets of JSON: a Hello, and then for each Order an answer
// with the attempts' names and results.

// MaxMessage limits a packet, in bytes.
const MaxMessage = 64 << 10

// Hello is a VMM's first message.
type Hello struct {
	Socket uint64 // inode of its end of the connection, which identifies the VMM
}

// Order lists attempts for the VMM. The first Order answers its Hello and is for the threads of its vCPUs.
type Order struct {
	World World
	Try   []string // names of attempts; if the first list is empty, the VMM behaves normally for now
}

// Do makes the attempts in order.
func (o Order) Do() map[string]string {
	all := map[string]string{}
	for _, name := range o.Try {
		if a, ok := Named(name); ok {
			all[name] = a.Try(o.World)
		}
	}
	return all
}
