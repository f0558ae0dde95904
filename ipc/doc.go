// Package ipc connects two processes of one machine that work on the same GPU, so that
// they can share events and device memory, hand batches to each other without a copy,
// and both survive when the other dies. It is there on Linux only; elsewhere it compiles,
// and [Listen] and [Dial] answer an error that matches errors.ErrUnsupported.
//
// One process listens at a socket in the file system, the other dials it. From then on
// both ends are the same: a [Session]. Either offers events and memory under names, and
// attaches what the other offers.
//
//	// the exporter
//	l, err := ipc.Listen("/run/user/1000/weights", nil)
//	s, err := l.Accept(ctx)
//	err = s.Offer("weights", buffer)   // of cuda.Alloc
//	err = event.Record(stream)         // the event was made with EventOptions.Interprocess
//	err = s.Offer("ready", event)
//	...
//	err = s.Withdraw(ctx, "weights")   // until the importer has released them
//	err = s.Shutdown(ctx)
//
//	// the importer
//	s, err := ipc.Dial(ctx, "/run/user/1000/weights", nil)
//	weights, err := ipc.Buffer[float32](ctx, s, drv, "weights")
//	ready, err := s.Event(ctx, drv, "ready")
//	err = ready.WaitAlive(ctx, stream) // and then use the weights on stream
//	...
//	<-s.Withdrawn("weights")           // the exporter wants them back
//	err = weights.Close()
//	...
//	err = s.Close()
//
// What goes over the socket are [Token] values, some hundred bytes each. The memory
// itself is not copied, and no call on the device goes through the socket. Nothing orders
// what the two processes do with the memory but the events that they share: an event that
// is offered before it was recorded is done for whoever waits for it. For a flow of
// batches a ring does the ordering, see below.
//
// # Tokens
//
// Programs with a way of their own to send some hundred bytes, such as gRPC or MPI, need no
// session: [ExportEvent] and [ExportBuffer] make a [Token], which goes over any wire, and
// [ImportEvent] and [ImportBuffer] check it and open what it stands for. The exporter's
// death is noticed. But nobody tells the exporter when the importer is done.
//
// # Who owns what
//
// The exporter owns the memory and the events, and a session keeps what it was offered
// alive: the exporter may close its buffer at any time, and the memory is given back to
// the device when the importer has released it too. The importer owns what it attached,
// and closes it: each by itself, or all with the session. It has let go when it has
// closed what it attached under the name, each time that it did, and no graph and no work
// that was enqueued with it uses it any more ([cuda.OpenOptions]). The exporter gets it
// back sooner by [Session.Withdraw]: the importer learns of it by [Session.Withdrawn], and
// Withdraw returns when it has let go. Nobody is made to: an importer that does not close
// what is wanted back keeps it.
//
// A session ends by [Session.Close] at either end, which tells the other ([ErrLeft]) and
// does not wait for it. What the other end has attached stays valid there until that
// closes it. Both ends must be closed. An exporter that is about to exit calls
// [Session.Shutdown], which closes and waits until the importer has released everything.
//
// # Rings
//
// A ring takes batches from one process, the producer, to the other, the consumer. It has
// some buffers, its slots, in one piece of the producer's memory, which both fill and
// read in turn; either end of a session can be the producer, and there can be several
// rings, under names of their own.
//
//	// the producer
//	p, err := ipc.NewProducer[float32](ctx, s, device, "batches", 4, 1<<20)
//	for ... {
//		slot, err := p.Next(ctx, stream)   // stream waits until the slot is free
//		...                                // enqueue what fills slot.Buffer
//		err = slot.Send(stream)
//	}
//	err = p.Flush(ctx)                     // all of it was used
//	err = p.Close()
//
//	// the consumer
//	c, err := ipc.NewConsumer[float32](ctx, s, drv, "batches")
//	for {
//		batch, err := c.Next(ctx, stream)  // stream waits until the batch is there
//		...                                // enqueue what uses batch.Buffer
//		err = batch.Release(stream)
//		err = batch.Confirm(ctx)           // io.EOF after the last one
//	}
//	err = c.Close()
//
// The streams wait, not the hosts: these enqueue, and are ahead of the device by as many
// batches as there are slots. The order is kept by counters, two for each slot, in a page
// or more of host memory that both processes map: a stream sets a counter when it comes
// to a Send or a Release, and the other end's stream waits for that value
// ([cuda.Stream.WaitValue]). Counters have this over events: who survives can set them
// himself, so that no stream waits for the dead. On devices whose streams cannot wait for
// memory, events take their place, and the wait for the other end is the host's, in Next.
//
// The price of it is [Batch.Confirm]. A stream whose wait was ended goes on, on whatever
// is in the slot, and only Confirm tells that from a batch that came: what was computed
// from a batch counts only when Confirm has returned nil. Confirm some batches later, to
// keep the device busy. A producer knows by [Producer.Flush] that the consumer is done
// with what was sent.
//
// If the producer dies, the batches that it had finished still come and are confirmed;
// for others Confirm and Next match [cuda.ErrPeerGone]. If the consumer dies, Next and
// Flush of the producer do, and the memory is kept until nothing of the consumer is left
// on the device. A new ring, in a new session, starts again at 0.
//
// A ring must be closed at both ends; closing the session closes its rings. The memory is
// freed when both ends are closed, or the consumer is gone.
//
// # When the other process dies
//
// Done is closed within some hundredths of a second, and Err matches [cuda.ErrPeerGone].
// The same happens when the connection breaks for another reason. What was offered and
// attached stays as it is, and the session must still be closed; nothing on this side is
// freed under anybody's work:
//
//   - The importer dies: what it had attached is kept until nothing is left of it. Its
//     work on the device may go on for some milliseconds after its last instruction, and
//     the driver takes some hundred milliseconds to clear it away. If only the connection
//     broke, and the process lives, what it has is kept for as long as it lives: a leak
//     is better than memory that changes under somebody's kernel. Withdraw and Shutdown
//     wait for that.
//   - The exporter dies: memory that is attached stays readable and writable until it is
//     closed, but what the exporter had not finished will never be written. Waits on the
//     host for its events end with [cuda.ErrPeerGone]. A stream that waits for such an
//     event on the device ([cuda.Event.Wait]) is lost; [cuda.Event.WaitAlive] never
//     makes one wait so.
//
// # Who may take part
//
// A token is a capability: the driver lets any process of the machine that knows the
// handle of memory open it, whichever user it runs as. (It is stricter with events.) So
// tokens go only to processes that were allowed to connect. The socket belongs to its
// user alone, from its first moment on, and both ends ask the kernel who is at the other
// one: unless [Options] say otherwise it must be the same user, and root is another user.
// Put the socket where only this user can make files, such as /run/user/UID: in /tmp
// another user can be there first, which is noticed, but keeps this one from listening.
//
// Whoever is connected can read and write all that is offered, and can stop its own
// work at any time; the session protects from accidents and from strangers, and not from
// a hostile process of the same user. What comes over the socket is checked all the same:
// an end that does not keep to the protocol is told so and dropped ([ErrProtocol]), and
// one that does not read, or says too much, cannot make the other run out of memory or of
// files.
//
// The two processes must be in the same PID namespace, because otherwise one could not
// see the other die. In containers: share the PID namespace, /dev/shm, which events need,
// and the directory of the socket.
package ipc
