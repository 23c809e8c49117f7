//! Slots that move while commands wait for them: nothing is lost, split, overtaken or run twice.

mod cancelled;
mod full_loss;
mod half_written;
mod order;
mod queued;
