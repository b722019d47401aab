// Package grants decides what a slot's command may have: which paths never
// reach a slot (app-private roots and credential stores of the service), in
// which folders a grant must lie, what the folders it writes to must look like,
// and which environment variables come along.
//
// It imports the standard library and golang.org/x/sys only and knows nothing of
// policies, sudo or slotctl. A filtered grant is dropped and told, never an
// error: the command runs with less.
package grants
