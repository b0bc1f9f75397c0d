// Package reply is the way of every JSON answer of the control APIs to a client: Charge counts the
// answer in the tenant's share of the memory for requests in flight (package membudget), Write encodes
// it in pieces. A client that reads slowly so holds the answer once, counted, and one encoded piece. The
// package does not decide statuses and headers, which are httpapi's and e2bapi's. The trap: Write comes
// after the status, so that everything that can be refused is refused by Charge.
package reply
