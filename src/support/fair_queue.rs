//! A queue whose owners take turns.

use std::collections::VecDeque;

/// Waiting jobs, which belong to owners such as tenants. Owners get their turns one after the other, no matter how many jobs
/// each has.
#[derive(Debug)]
pub(crate) struct FairQueue<K, J> {
    /// The owners with waiting jobs, each with its jobs, oldest first. The first owner is the next to get a turn.
    owners: VecDeque<(K, VecDeque<J>)>,
}

impl<K, J> Default for FairQueue<K, J> {
    fn default() -> Self {
        Self { owners: VecDeque::new() }
    }
}

impl<K: PartialEq, J> FairQueue<K, J> {
    /// Returns the number of waiting jobs.
    pub(crate) fn len(&self) -> usize {
        self.owners.iter().map(|(_, jobs)| jobs.len()).sum()
    }

    pub(crate) fn push(&mut self, owner: K, job: J) {
        match self.owners.iter_mut().find(|(known, _)| *known == owner) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.owners.push_back((owner, VecDeque::from([job]))),
        }
    }

    /// Takes the next job.
    pub(crate) fn pop(&mut self) -> Option<J> {
        let (owner, mut jobs) = self.owners.pop_front()?;
        let job = jobs.pop_front();
        if !jobs.is_empty() {
            self.owners.push_back((owner, jobs));
        }
        job
    }

    /// Removes the jobs for which `is_wanted` returns `false`.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&J) -> bool) {
        for (_, jobs) in &mut self.owners {
            jobs.retain(&is_wanted);
        }
        self.owners.retain(|(_, jobs)| !jobs.is_empty());
    }

    /// Makes room for a job of this owner in a full queue: takes the last job of the owner with the most, if it has at least
    /// two more. Returns the job that lost its place.
    pub(crate) fn displace(&mut self, owner: &K) -> Option<J> {
        let own = self.owners.iter().find(|(known, _)| known == owner).map_or(0, |(_, jobs)| jobs.len());
        let (_, longest) = self.owners.iter_mut().max_by_key(|(_, jobs)| jobs.len())?;
        if longest.len() > own + 1 { longest.pop_back() } else { None }
    }
}
