//! The planner and the launch guard in a simulated world.

#[cfg(test)]
mod forming;
#[cfg(test)]
mod healing;
#[cfg(test)]
mod world;
